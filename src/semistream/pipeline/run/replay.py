"""A quarantine brought back through the join, as a batch job.

Rows that find their master rows now go to the sink and leave the quarantine; the others stay, and
their attempts are counted. What was found is first written to a table beside the quarantine, in one
transaction. All that follows is done from there, under the number of the quarantine's version: so
what was cut off can be done again, and each row reaches the sink once, though masters change.

That table is the lock, too: it takes one replay at a time, numbered by the version at which it was
seen empty, and each of its rows says which replay it is of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from semistream.errors import OptionError, SemistreamError
from semistream.missing import QUARANTINED
from semistream.names import RESERVED
from semistream.pipeline.checkpoint.checkpoint import query_of
from semistream.pipeline.checkpoint.held import held
from semistream.pipeline.io.batches import write_batch, write_delta
from semistream.pipeline.io.delta import Table, sql_name
from semistream.pipeline.late.split import (
    ATTEMPTS,
    ENRICHMENT,
    QUERY,
    REASON,
    ROW,
    TIME,
    arranged,
    chosen_marks,
    parted,
)
from semistream.pipeline.run.batchwise import Batchwise
from semistream.pipeline.run.query import checked, enriched
from semistream.pipeline.run.replayed import DROPPED, Replayed
from semistream.spark.storage import forget, sweep
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from semistream.pipeline import Pipeline
    from semistream.pipeline.file.check import Flow
    from semistream.pipeline.io.delta import Version

__all__ = ["ReplayError", "Replayed", "replay"]

_RUN = f"{RESERVED}_run"


class ReplayError(SemistreamError, RuntimeError):
    """Another replay of the quarantine is at work, or has to be finished otherwise."""


def replay(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    where: str | None = None,
    limit: int | None = None,
    any_query: bool = False,
) -> Replayed:
    """Bring rows of a pipeline's quarantine back through its enrichments.

    Started again after it was cut off, it first finishes what it had begun. The pipeline may run
    meanwhile; of two replays of one quarantine at a time one fails, and nothing is lost.

    Parameters
    ----------
    pipeline
        The pipeline that filled the quarantine, from `read_pipeline`.
    spark
        The session, from `session_for` or your own.
    where
        Which rows, as SQL: the stream's columns, and ``_reason``, ``_enrichment``, ``_time``,
        ``_query``, ``_batch`` and ``_attempts``. All if not given.
    limit
        At most so many rows, the oldest first.
    any_query
        Also rows that other pipelines have put there, or this one with another checkpoint.

    Raises
    ------
    ReplayError
        Another replay is at work, or one was cut off that this pipeline can't finish.
    """
    table = Table(spark, pipeline.quarantine.path)
    if not pipeline.splits:
        msg = f"{pipeline.path}: no enrichment has on_missing: quarantine; there is none to replay"
        raise OptionError(msg)
    if not table.exists:
        return Replayed()
    flow = checked(pipeline, spark, table.rows().drop(*QUARANTINED))
    query = query_of(pipeline, spark) or ""
    run = _Replay(pipeline, flow, table, Table(spark, f"{pipeline.quarantine.path}.replay"), query)
    seen, finished = run.settle()
    version = table.last
    rows = table.rows(version.number)
    own = rows if any_query else rows.where(F.col(QUERY) == query)
    others = 0 if any_query else rows.where(F.col(QUERY) != query).count()
    chosen = _chosen(own, where, limit)
    if chosen.isEmpty():
        return Replayed(finished=finished, others=others)
    told = run.done(chosen, version, seen)
    return replace(told, finished=finished, others=others)


def _chosen(rows: DataFrame, where: str | None, limit: int | None) -> DataFrame:
    if where is not None:
        try:
            rows = rows.where(where)
        except (AnalysisException, ParseException) as error:
            told = str(error).splitlines()[0]
            msg = f"--where {where!r} is not understood: {told}; it has {rows.columns}"
            raise OptionError(msg) from None
    return rows if limit is None else rows.orderBy(TIME, ROW).limit(limit)


class _Run(NamedTuple):
    """One replay, as each row that it has found tells it."""

    id: str
    query: str
    """Of the pipeline."""
    version: int
    """Of the quarantine."""
    columns: list[str]
    """What the sink calls c0, c1, …"""

    @property
    def told(self) -> Column:
        return F.struct(*(F.lit(value).alias(name) for name, value in self._asdict().items()))


@dataclass(frozen=True)
class _Replay:
    """The steps of a replay; each can be done again."""

    pipeline: Pipeline
    flow: Flow
    quarantine: Table
    held: Table
    """What was found of the rows at hand; empty when all is done."""
    query: str

    @property
    def _id(self) -> str:
        return f"replay {self.quarantine.id}"

    def settle(self) -> tuple[int, int]:
        """Finish what was cut off; give the version at which none is held, and how many were."""
        finished = 0
        while True:
            seen = self.held.last.number if self.held.exists else -1
            run = self._held_at(seen)
            if run is None:
                return seen, finished
            self._check(run)
            finished += self.finish(run, seen).tried

    def done(self, rows: DataFrame, version: Version, seen: int) -> Replayed:
        """Hold what is found of rows now, if no other does, and bring it to its end."""
        names = [new for _, new in self.flow.columns]
        run = _Run(str(uuid4()), self.query, version.number, names)
        self.hold(rows, version, run, seen + 1)
        if self._held_at(seen + 1) != run:
            raise self._at_work()
        return self.finish(run, seen + 1)

    def _held_at(self, version: int) -> _Run | None:
        rows = self.held.rows(version).select(f"{_RUN}.*").take(1) if version >= 0 else []
        return _Run(**rows[0].asDict()) if rows else None

    def _check(self, run: _Run) -> None:
        """Refuse to finish a replay for which this pipeline is another."""
        begun = f"a replay that was cut off is held in {self.held.path}"
        if run.query != self.query:
            msg = f"{begun}, of another pipeline or checkpoint: query {run.query!r}, and this is "
            msg += f"{self.query!r}; replay with that pipeline's file first"
            raise ReplayError(msg)
        names = {new for _, new in self.flow.columns}
        gone = [name for name in run.columns if name not in names]
        if gone:
            msg = f"{begun}, with columns {gone} that the pipeline no longer has; bring them back "
            msg += "in its file, replay to finish it, then change them"
            raise ReplayError(msg)

    def _at_work(self) -> ReplayError:
        msg = f"another replay of {self.quarantine.path} is at work; nothing is lost: wait until "
        return ReplayError(msg + "it has ended, and replay again")

    def hold(self, rows: DataFrame, version: Version, run: _Run, number: int) -> None:
        """Join, and write down what was found, in one transaction."""
        asked = rows.select(*map(quoted, self.flow.stream.names), ROW, ATTEMPTS)
        folder = f"{self.held.path}.found"
        # Computed again, now() in a choice of rows is later, and a live master answers otherwise.
        try:
            asked = held(asked, f"{folder}/{run.id}/asked", "0")
            joined = enriched(asked, self.pipeline)
            marks = chosen_marks(joined, None)
            joined = held(joined, f"{folder}/{run.id}/joined", "0")
            good, missing = parted(joined, marks)
            dropped = asked.join(joined.select(ROW).distinct(), ROW, "left_anti")
            dropped = dropped.select(ROW, ATTEMPTS, F.lit(DROPPED).alias(REASON))
            missing = missing.select(ROW, ATTEMPTS, REASON, ENRICHMENT)
            for members in self._writer.members(rows.sparkSession):
                good = members.filled(good, version.millis)
            numbered = [(old, f"c{i}") for i, (old, _) in enumerate(self.flow.columns)]
            found = arranged(good, [(ROW, ROW), (ATTEMPTS, ATTEMPTS), *numbered])
            for more in (missing, dropped):
                found = found.unionByName(more, allowMissingColumns=True)
            self._write(found.withColumn(_RUN, run.told), number)
        finally:
            forget(rows.sparkSession, f"{folder}/{run.id}")
            sweep(rows.sparkSession, folder)

    @property
    def _writer(self) -> Batchwise:
        return Batchwise(self.pipeline, self.flow, lambda rows: rows, self._id)

    def _write(self, found: DataFrame, number: int) -> None:
        """Hold what was found, unless another replay has taken the number."""
        path, query = self.held.path, f"{self._id} held"
        try:
            write_delta(found, path, query, number, mode="overwrite", overwriteSchema="true")
        except (PySparkException, Py4JJavaError) as error:
            if "Concurrent" in str(error):
                raise self._at_work() from error
            raise

    def finish(self, run: _Run, version: int) -> Replayed:
        """Write what was found to the sink, then take it out of the quarantine, then forget it."""
        found = self.held.rows(version)
        columns = [(f"c{i}", name) for i, name in enumerate(run.columns)]
        good = arranged(found.where(F.col(REASON).isNull()), columns)
        write_batch(self.pipeline.sink, good, self._id, run.version)
        self._take_out(found)
        told = Replayed.of(found)
        delete = f"DELETE FROM {sql_name(self.held.path)} WHERE {_RUN}.id = '{run.id}'"  # noqa: S608
        self.held.spark.sql(delete)
        return told

    def _take_out(self, found: DataFrame) -> None:
        """Delete the rows that are done, count the attempts of the others; both in one commit."""
        stays = F.col(REASON).isNotNull() & (F.col(REASON) != DROPPED)
        changes = found.select(ROW, stays.alias("stays"), REASON, ENRICHMENT, ATTEMPTS).distinct()
        view, spark = f"semistream_{uuid4().hex}", self.quarantine.spark
        changes.createOrReplaceTempView(view)
        # Attempts are set, not added to: done again, this changes nothing.
        statement = (
            f"MERGE INTO {sql_name(self.quarantine.path)} q USING {view} f ON q.{ROW} = f.{ROW} "
            f"WHEN MATCHED AND NOT f.stays THEN DELETE WHEN MATCHED THEN UPDATE SET "
            f"{REASON} = f.{REASON}, {ENRICHMENT} = f.{ENRICHMENT}, {ATTEMPTS} = f.{ATTEMPTS} + 1"
        )
        try:
            spark.sql(statement)
        finally:
            spark.catalog.dropTempView(view)
