"""From a pipeline to what writes its batches, where more is written than the sink."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from semistream.errors import SemistreamError
from semistream.missing import SPLITTING
from semistream.names import RESERVED
from semistream.pipeline.checkpoint.batch_log import BatchLog, BatchPlan, read_plan
from semistream.pipeline.file.errors import PipelineError, Problem
from semistream.pipeline.io.delta import write_delta
from semistream.pipeline.io.sinks import write_batch
from semistream.pipeline.late.members import Dimension, Members
from semistream.pipeline.late.split import (
    add_batch_time,
    quarantine_rows,
    select_columns,
    split_rows,
)
from semistream.pipeline.late.split_writer import (
    OUT,
    QUARANTINE,
    WAIT,
    Chain,
    Rule,
    SplitWriter,
    Targets,
)
from semistream.pipeline.late.waiting_table import WaitingTable
from semistream.spark.lookup.outcome import WAITED, marks_of
from semistream.spark.lookup.snapshot import pin_batch
from semistream.spark.metrics.listener import note_written

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from semistream.pipeline import Pipeline
    from semistream.pipeline.checkpoint.batch_log import MicroBatch
    from semistream.pipeline.file.check import Flow, Step
    from semistream.pipeline.file.models import Enrichment
    from semistream.pipeline.late.split_writer import Counts, Snapshots

__all__ = ["BatchWriter", "check_dimensions", "status_column"]


def status_column(step: Enrichment, number: int) -> str | None:
    """Return the status column of a pipeline's enrichment; None if it has no need of one."""
    reserved = f"{RESERVED}_status_{number}" if step.splits or step.surrogate else None
    return step.status or reserved


def check_dimensions(pipeline: Pipeline, flow: Flow, spark: SparkSession) -> None:
    """Raise for dimensions that cannot take new members; nothing is changed."""
    problems = []
    for i, step in enumerate(flow.steps):
        if step.enrichment.surrogate:
            try:
                _dimension(step).check(spark)
            except SemistreamError as error:
                where = f"enrich[{i}].dimension"
                problems.append(Problem(pipeline.mark(where), f"{where}: {error}"))
    if problems:
        raise PipelineError(str(pipeline.path), problems)


def _dimension(step: Step) -> Dimension:
    options = step.enrichment
    return Dimension(options.dimension, step.spec.master.key, options.surrogate)


@dataclass(frozen=True)
class BatchWriter:
    """Writes the batches of a pipeline."""

    pipeline: Pipeline
    flow: Flow
    enrich_again: Callable[[DataFrame], DataFrame]
    """Joins rows that come as a batch with the pipeline's masters."""
    query: str
    """What the sink knows the query by."""

    def writer(self, frame: DataFrame) -> Callable[[DataFrame, int], None]:
        """Return what writes a batch of this stream, for ``foreachBatch``; create its tables."""
        pipeline, spark = self.pipeline, frame.sparkSession
        targets = Targets(
            partial(self._write_out, self.members(spark)),
            partial(self._write_quarantine, frame.schema),
            f"{pipeline.checkpoint.rstrip('/')}/semistream-held",
        )
        table = None
        if pipeline.waits:
            names = {*self.flow.stream.names}
            fields = [field for field in frame.schema if field.name in names]
            table = WaitingTable(pipeline.waiting.path, fields, self.query)
            table.open(spark)
        delay, report = round(1000 * pipeline.waiting.delay), partial(self._report, spark)
        return SplitWriter(self._chain(spark), targets, self._plan, table, delay, report).write

    def _plan(self, spark: SparkSession, number: int) -> BatchPlan:
        return read_plan(spark, self.pipeline.checkpoint, number)

    def _report(self, spark: SparkSession, batch: MicroBatch, counts: Counts, waiting: int) -> None:
        """Report what became of rows; of those that have waited, with the first that has some."""
        report: dict[str, dict[str, int]] = {}
        waited = dict(zip(WAITED, (*counts.left(OUT, QUARANTINE), waiting), strict=True))
        for i, step in enumerate(self.pipeline.enrich):
            by = str(status_column(step, i))
            if step.splits:
                report[step.name] = {"quarantined": counts.count(QUARANTINE, by=by)}
            if step.on_missing == "wait":
                now = counts.count(WAIT, again=False, by=by)
                report[step.name] |= {"waiting": now, **waited}
                waited = {}
        note_written(spark, batch.query, batch.number, report)

    def _chain(self, spark: SparkSession) -> Chain:
        waiting = self.pipeline.waiting
        rules = []
        for i, step in enumerate(self.pipeline.enrich):
            status = str(status_column(step, i))
            if step.on_missing == "wait":
                rules.append(Rule(status, waiting.then, round(1000 * waiting.grace)))
            elif step.splits:
                rules.append(Rule(status))
        log = self.batch_log(spark)

        def again(rows: DataFrame, batch: MicroBatch) -> DataFrame:
            return self.enrich_again(add_batch_time(rows, batch.millis))

        return Chain(again, rules, lambda batch: log.begin(batch, lambda: self._pin(batch)))

    def batch_log(self, spark: SparkSession) -> BatchLog:
        """Return the log of the checkpoint's last batches."""
        masters = tuple(step.master for step in self.pipeline.enrich)
        return BatchLog(spark, self.pipeline.checkpoint.rstrip("/"), masters)

    def _pin(self, batch: MicroBatch) -> Snapshots:
        """Pin the snapshots that a batch reads; None where a master, as a database, has none."""
        if any(step.live for step in self.pipeline.enrich):
            return None
        of = batch.query, str(batch.number)
        pins = [pin_batch(step.master, of) for step in self.pipeline.enrich]
        files = tuple(pin.files for pin in pins if pin is not None)
        return files if len(files) == len(pins) else None

    def members(self, spark: SparkSession) -> list[Members]:
        """Return what fills in the surrogates of members that are not in a master yet."""
        members = []
        for i, step in enumerate(self.flow.steps):
            if step.enrichment.surrogate:
                dimension, spec = _dimension(step), step.spec
                dimension.open(spark)
                on = dict(zip(spec.stream_keys, spec.master.key, strict=True))
                column = f"{spec.prefix}{step.enrichment.surrogate}"
                status = str(status_column(step.enrichment, i))
                members.append(Members(dimension, on, column, status))
        return members

    def _write_out(self, members: list[Members], rows: DataFrame, batch: MicroBatch) -> None:
        for each in members:
            rows = each.fill(rows, batch.millis)
        rows = select_columns(rows, self.flow.columns)
        write_batch(self.pipeline.sink, rows, self.query, batch.number)

    def _write_quarantine(self, schema: StructType, rows: DataFrame, batch: MicroBatch) -> None:
        # With then: null, an enrichment that waits lets rows through, and another takes them.
        takes = SPLITTING if self.pipeline.waiting.then == QUARANTINE else (QUARANTINE,)
        marks = [mark for mark in marks_of(schema) if mark.on_missing in takes]
        _, missing = split_rows(rows, marks)
        rows = quarantine_rows(missing, self.flow.stream.names, self.query, batch.number)
        path, query = self.pipeline.quarantine.path, f"{self.query} quarantine"
        # Of a name of its own: in a table that has the batch's other part, Delta would skip it.
        write_delta(rows, path, query, batch.number, mergeSchema="true")
