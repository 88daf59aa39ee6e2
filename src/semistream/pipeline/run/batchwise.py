"""From a pipeline to what writes its batches, where more is written than the sink."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from semistream.errors import SemistreamError
from semistream.missing import SPLITTING
from semistream.names import RESERVED
from semistream.pipeline.checkpoint.decisions import Decisions
from semistream.pipeline.checkpoint.micro_batch import Planned, planned_batch
from semistream.pipeline.file.errors import PipelineError, Problem
from semistream.pipeline.io.batches import write_batch, write_delta
from semistream.pipeline.late.members import Dimension, Members
from semistream.pipeline.late.split import arranged, parted, quarantined, timed
from semistream.pipeline.late.waiting import OUT, QUARANTINE, WAIT, Chain, Rule, WaitingWriter, Ways
from semistream.pipeline.late.waiting_table import WaitingTable
from semistream.spark.lookup.outcome import WAITED, marks_of
from semistream.spark.lookup.snapshot import pinned
from semistream.spark.metrics.watch import tell_written

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from semistream.pipeline import Pipeline
    from semistream.pipeline.checkpoint.micro_batch import Once
    from semistream.pipeline.file.check import Flow, Step
    from semistream.pipeline.file.models import Enrichment
    from semistream.pipeline.late.waiting import Snapshots
    from semistream.pipeline.late.waiting_table import Found

__all__ = ["Batchwise", "check_dimensions", "status_column"]


def status_column(step: Enrichment, number: int) -> str | None:
    """Name the status column of a pipeline's enrichment; None if it has no need of one."""
    parts = f"{RESERVED}_status_{number}" if step.splits or step.surrogate else None
    return step.status or parts


def check_dimensions(pipeline: Pipeline, flow: Flow, spark: SparkSession) -> None:
    """Refuse dimensions that can't take new members; nothing is changed."""
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
    told = step.enrichment
    return Dimension(told.dimension, step.spec.master.key, told.surrogate)


@dataclass(frozen=True)
class Batchwise:
    """Writes the batches of a pipeline."""

    pipeline: Pipeline
    flow: Flow
    enriched: Callable[[DataFrame], DataFrame]
    """Joins rows that come as a batch with the pipeline's masters."""
    query: str
    """What the sink knows the query by."""

    def writer(self, frame: DataFrame) -> Callable[[DataFrame, int], None]:
        """Give what writes a batch of this stream, for ``foreachBatch``; it makes what it needs."""
        told, spark = self.pipeline, frame.sparkSession
        ways = Ways(
            partial(self._out, self.members(spark)),
            partial(self._quarantine, frame.schema),
            self._held,
        )
        clock = partial(_planned, told.checkpoint)
        table = self._table(frame) if told.waits else None
        delay = round(1000 * told.waiting.delay)
        return WaitingWriter(self._chain(spark), ways, clock, table, delay, self._tell).write

    def _tell(self, once: Once, found: Found, waiting: int) -> None:
        """Report what became of rows; of those that have waited, with the first that has some."""
        told: dict[str, dict[str, int]] = {}
        waited = dict(zip(WAITED, (*found.left(OUT, QUARANTINE), waiting), strict=True))
        for i, step in enumerate(self.pipeline.enrich):
            if step.splits:
                by = str(status_column(step, i))
                told[step.name] = {"quarantined": found.count(QUARANTINE, by=by)}
            if step.on_missing == "wait":
                told[step.name] |= {"waiting": found.count(WAIT, again=False, by=by), **waited}
                waited = {}
        tell_written(once.query, once.number, told)

    @property
    def _held(self) -> str:
        """Where batches are written down before they are parted."""
        return f"{self.pipeline.checkpoint.rstrip('/')}/semistream-held"

    @property
    def _is_live(self) -> bool:
        """Whether a master has no snapshots: a database."""
        return any(step.live for step in self.pipeline.enrich)

    def _chain(self, spark: SparkSession) -> Chain:
        waiting, steps = self.pipeline.waiting, enumerate(self.pipeline.enrich)
        grace = round(1000 * waiting.grace)
        rules = [
            Rule(str(status_column(step, i)), waiting.then, grace)
            if step.on_missing == "wait"
            else Rule(str(status_column(step, i)))
            for i, step in steps
            if step.splits
        ]
        decisions = self.decisions(spark)
        return Chain(
            self._again, rules, lambda once: decisions.decide(once, lambda: self._pinned(once))
        )

    def decisions(self, spark: SparkSession) -> Decisions:
        """Return what the checkpoint has noted of its last batches."""
        masters = tuple(step.master for step in self.pipeline.enrich)
        return Decisions(spark, self.pipeline.checkpoint.rstrip("/"), masters)

    def _again(self, rows: DataFrame, once: Once) -> DataFrame:
        return self.enriched(timed(rows, once.millis))

    def _pinned(self, once: Once) -> Snapshots:
        if self._is_live:
            return None
        of = once.query, str(once.number)
        found = [pinned(step.master, of) for step in self.pipeline.enrich]
        pins = [pin.files for pin in found if pin is not None]
        return tuple(pins) if len(pins) == len(found) else None

    def _table(self, frame: DataFrame) -> WaitingTable:
        names = {*self.flow.stream.names}
        fields = [field for field in frame.schema if field.name in names]
        table = WaitingTable(self.pipeline.waiting.path, fields, self.query)
        table.open(frame.sparkSession)
        return table

    def members(self, spark: SparkSession) -> list[Members]:
        """Give what fills in the surrogates of members that are not in a master yet."""
        made = []
        for i, step in enumerate(self.flow.steps):
            if step.enrichment.surrogate:
                dimension, spec = _dimension(step), step.spec
                dimension.open(spark)
                on = dict(zip(spec.stream_keys, spec.master.key, strict=True))
                column = f"{spec.prefix}{step.enrichment.surrogate}"
                made.append(Members(dimension, on, column, str(status_column(step.enrichment, i))))
        return made

    def _out(self, members: list[Members], rows: DataFrame, once: Once) -> None:
        for each in members:
            rows = each.filled(rows, once.millis)
        rows = arranged(rows, self.flow.columns)
        write_batch(self.pipeline.sink, rows, self.query, once.number)

    def _quarantine(self, schema: StructType, rows: DataFrame, once: Once) -> None:
        # With then: null, an enrichment that waits lets rows through, and another takes them.
        takes = SPLITTING if self.pipeline.waiting.then == QUARANTINE else (QUARANTINE,)
        marks = [mark for mark in marks_of(schema) if mark.on_missing in takes]
        _, missing = parted(rows, marks)
        rows = quarantined(missing, self.flow.stream.names, self.query, once.number)
        path = self.pipeline.quarantine.path
        # Of a name of its own: in a table that has the batch's other part, Delta would skip it.
        write_delta(rows, path, f"{self.query} quarantine", once.number, mergeSchema="true")


def _planned(checkpoint: str, spark: SparkSession, number: int) -> Planned:
    return planned_batch(spark, checkpoint, number)
