"""A quarantine brought back through the join, as a batch job.

Rows that find their master rows now go to the sink and leave the quarantine; the others stay, and
their attempts are counted. The answers are first written to a table beside the quarantine, in one
transaction. All that follows is done from there, under the number of the quarantine's version: so
an interrupted replay can be done again, and each row reaches the sink once, though masters change.

That table is the lock, too: it takes one replay at a time, numbered by the version at which it was
seen empty, and each of its rows says which replay it is of.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from semistream.errors import OptionError, SemistreamError
from semistream.missing import MATCHED, QUARANTINED
from semistream.names import RESERVED
from semistream.pipeline.checkpoint.batch_store import store_batch
from semistream.pipeline.checkpoint.checkpoint import query_of
from semistream.pipeline.io.delta import Table, sql_name, write_delta
from semistream.pipeline.io.sinks import write_batch
from semistream.pipeline.late.split import (
    ATTEMPTS,
    ENRICHMENT,
    QUERY,
    REASON,
    ROW,
    TIME,
    select_columns,
    split_rows,
    splitting_marks,
)
from semistream.pipeline.run.batch_writer import BatchWriter
from semistream.pipeline.run.query import check_schemas, enrich_all
from semistream.spark.storage import delete, delete_old
from semistream.spark.types import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from semistream.pipeline import Pipeline
    from semistream.pipeline.file.check import Flow
    from semistream.pipeline.io.delta import Version

__all__ = ["ReplayError", "ReplayResult", "replay"]

_RUN = f"{RESERVED}_run"
DROPPED = "dropped"
"""The reason of a row that leaves the quarantine, and does not reach the sink."""


class ReplayError(SemistreamError, RuntimeError):
    """Another replay of the quarantine is at work, or has to be finished otherwise."""


@dataclass(frozen=True)
class ReplayResult:
    """What became of the rows of a quarantine that was brought back."""

    tried: int = 0
    """Rows that were brought to the join again."""
    matched: int = 0
    """Those that left for the sink."""
    dropped: int = 0
    """Those that other enrichments of the pipeline leave out."""
    left: dict[str, int] = field(default_factory=dict)
    """Those that stay, by reason."""
    written: int = 0
    """Rows that went to the sink: more than matched where a master has several rows a key."""
    finished: int = 0
    """Rows of an earlier replay that was cut off, and was brought to its end first."""
    others: int = 0
    """Rows that other queries have put there, and that were left alone."""

    def __str__(self) -> str:
        stay = ", ".join(f"{count:,} {reason}" for reason, count in self.left.items())
        text = f"{self.tried:,} rows tried, {self.matched:,} matched and written"
        text += f", {self.dropped:,} dropped" if self.dropped else ""
        text += f", {sum(self.left.values()):,} stay ({stay})" if self.left else ", none stays"
        text += f"; {self.others:,} of other queries left alone" if self.others else ""
        earlier = f"finished an earlier replay of {self.finished:,} rows; " if self.finished else ""
        return earlier + text

    @classmethod
    def of(cls, answers: DataFrame) -> ReplayResult:
        """Count rows by their reason, which is null where they matched."""
        groups = answers.groupBy(F.coalesce(REASON, F.lit(MATCHED)).alias("reason")).agg(
            F.countDistinct(ROW).alias("rows"), F.count(F.lit(1)).alias("written")
        )
        by_reason = {row["reason"]: row for row in groups.collect()}
        counts = {name: row["rows"] for name, row in by_reason.items()}
        matched, dropped = counts.pop(MATCHED, 0), counts.pop(DROPPED, 0)
        return cls(
            tried=matched + dropped + sum(counts.values()),
            matched=matched,
            dropped=dropped,
            left=counts,
            written=by_reason[MATCHED]["written"] if matched else 0,
        )


def replay(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    where: str | None = None,
    limit: int | None = None,
    any_query: bool = False,
) -> ReplayResult:
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
        return ReplayResult()
    flow = check_schemas(pipeline, spark, table.rows().drop(*QUARANTINED))
    query = query_of(pipeline, spark) or ""
    run = _Replay(pipeline, flow, table, Table(spark, f"{pipeline.quarantine.path}.replay"), query)
    seen, finished = run.finish_earlier()
    version = table.last
    rows = table.rows(version.number)
    own = rows if any_query else rows.where(F.col(QUERY) == query)
    others = 0 if any_query else rows.where(F.col(QUERY) != query).count()
    chosen = _chosen(own, where, limit)
    if chosen.isEmpty():
        return ReplayResult(finished=finished, others=others)
    return replace(run.run(chosen, version, seen), finished=finished, others=others)


def _chosen(rows: DataFrame, where: str | None, limit: int | None) -> DataFrame:
    if where is not None:
        try:
            rows = rows.where(where)
        except (AnalysisException, ParseException) as error:
            why = str(error).splitlines()[0]
            msg = f"--where {where!r} is not understood: {why}; it has {rows.columns}"
            raise OptionError(msg) from None
    return rows if limit is None else rows.orderBy(TIME, ROW).limit(limit)


class _Run(NamedTuple):
    """One replay, as each of its answers names it."""

    id: str
    query: str
    """Of the pipeline."""
    version: int
    """Of the quarantine."""
    columns: list[str]
    """What the sink calls c0, c1, …"""

    @property
    def column(self) -> Column:
        return F.struct(*(F.lit(value).alias(name) for name, value in self._asdict().items()))


@dataclass(frozen=True)
class _Replay:
    """The steps of a replay; each can be done again."""

    pipeline: Pipeline
    flow: Flow
    quarantine: Table
    answers: Table
    """The answers to the rows at hand; empty when all is done."""
    query: str

    @property
    def _id(self) -> str:
        return f"replay {self.quarantine.id}"

    def finish_earlier(self) -> tuple[int, int]:
        """Finish interrupted replays; return the version without answers, and how many rows."""
        finished = 0
        while True:
            seen = self.answers.last.number if self.answers.exists else -1
            run = self._run_at(seen)
            if run is None:
                return seen, finished
            self._check(run)
            finished += self.finish(run, seen).tried

    def run(self, rows: DataFrame, version: Version, seen: int) -> ReplayResult:
        """Write the answers to rows down, if no other replay is at work, and finish them."""
        names = [new for _, new in self.flow.columns]
        run = _Run(str(uuid4()), self.query, version.number, names)
        self._answer(rows, version, run, seen + 1)
        if self._run_at(seen + 1) != run:
            raise self._at_work()
        return self.finish(run, seen + 1)

    def _run_at(self, version: int) -> _Run | None:
        rows = self.answers.rows(version).select(f"{_RUN}.*").take(1) if version >= 0 else []
        return _Run(**rows[0].asDict()) if rows else None

    def _check(self, run: _Run) -> None:
        """Raise for a replay that this pipeline cannot finish."""
        begun = f"a replay that was cut off is held in {self.answers.path}"
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

    def _answer(self, rows: DataFrame, version: Version, run: _Run, number: int) -> None:
        """Join, and write the answers down, in one transaction."""
        spark, folder = rows.sparkSession, f"{self.answers.path}.found"
        rows = rows.select(*map(quote, self.flow.stream.names), ROW, ATTEMPTS)
        # Computed again, now() in a choice of rows is later, and a live master answers otherwise.
        try:
            rows = store_batch(rows, f"{folder}/{run.id}/asked", "0")
            joined = enrich_all(rows, self.pipeline)
            marks = splitting_marks(joined, None)
            joined = store_batch(joined, f"{folder}/{run.id}/joined", "0")
            good, missing = split_rows(joined, marks)
            dropped = rows.join(joined.select(ROW).distinct(), ROW, "left_anti")
            dropped = dropped.select(ROW, ATTEMPTS, F.lit(DROPPED).alias(REASON))
            missing = missing.select(ROW, ATTEMPTS, REASON, ENRICHMENT)
            writer = BatchWriter(self.pipeline, self.flow, lambda rows: rows, self._id)
            for members in writer.members(spark):
                good = members.fill(good, version.millis)
            numbered = [(old, f"c{i}") for i, (old, _) in enumerate(self.flow.columns)]
            answers = select_columns(good, [(ROW, ROW), (ATTEMPTS, ATTEMPTS), *numbered])
            for more in (missing, dropped):
                answers = answers.unionByName(more, allowMissingColumns=True)
            self._write(answers.withColumn(_RUN, run.column), number)
        finally:
            delete(spark, f"{folder}/{run.id}")
            delete_old(spark, folder)

    def _write(self, answers: DataFrame, number: int) -> None:
        """Write answers down, unless another replay has taken the number."""
        path, query = self.answers.path, f"{self._id} held"
        try:
            write_delta(answers, path, query, number, mode="overwrite", overwriteSchema="true")
        except (PySparkException, Py4JJavaError) as error:
            if "Concurrent" in str(error):
                raise self._at_work() from error
            raise

    def finish(self, run: _Run, version: int) -> ReplayResult:
        """Write the answers to the sink, then take them out of the quarantine, then delete them."""
        answers = self.answers.rows(version)
        columns = [(f"c{i}", name) for i, name in enumerate(run.columns)]
        good = select_columns(answers.where(F.col(REASON).isNull()), columns)
        write_batch(self.pipeline.sink, good, self._id, run.version)
        self._take_out(answers)
        result = ReplayResult.of(answers)
        statement = f"DELETE FROM {sql_name(self.answers.path)} WHERE {_RUN}.id = '{run.id}'"  # noqa: S608
        self.answers.spark.sql(statement)
        return result

    def _take_out(self, answers: DataFrame) -> None:
        """Delete the rows that are done, count the attempts of the others; both in one commit."""
        stays = F.col(REASON).isNotNull() & (F.col(REASON) != DROPPED)
        changes = answers.select(ROW, stays.alias("stays"), REASON, ENRICHMENT, ATTEMPTS).distinct()
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
