"""A quarantine brought back through the join, as a batch job.

Rows that find their master rows now go to the sink and leave the quarantine; the others stay, and
their attempts are counted. What was found is first written to a table beside the quarantine, in one
transaction. All that follows is done from there, under the number of the quarantine's version: so
what was cut off can be done again, and each row reaches the sink once, though masters change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.errors import AnalysisException, ParseException

from semistream.errors import OptionError
from semistream.missing import MATCHED, QUARANTINED
from semistream.spark.batches import write_batch, write_delta
from semistream.spark.batchwise import Batchwise
from semistream.spark.delta import properties_of, sql_name
from semistream.spark.pipeline import checked, enriched
from semistream.spark.split import (
    ATTEMPTS,
    ENRICHMENT,
    REASON,
    ROW,
    TIME,
    arranged,
    chosen_marks,
    parted,
)
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from semistream.pipeline import Pipeline
    from semistream.pipeline.check import Flow

__all__ = ["Replayed", "replay"]

_VERSION = "__semistream_version"
_FOUND = "__semistream_found"
_DROPPED = "dropped"


@dataclass(frozen=True)
class Replayed:
    """What became of the rows of a quarantine."""

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

    def __str__(self) -> str:
        stay = ", ".join(f"{count:,} {reason}" for reason, count in self.left.items())
        told = f"{self.tried:,} rows tried, {self.matched:,} matched and written"
        told += f", {self.dropped:,} dropped" if self.dropped else ""
        told += f", {sum(self.left.values()):,} stay ({stay})" if self.left else ", none stays"
        earlier = f"finished an earlier replay of {self.finished:,} rows; " if self.finished else ""
        return earlier + told


def replay(
    pipeline: Pipeline, spark: SparkSession, *, where: str | None = None, limit: int | None = None
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
    """
    table = _Table(spark, pipeline.quarantine)
    if not pipeline.splits:
        msg = f"{pipeline.path}: no enrichment has on_missing: quarantine; there is none to replay"
        raise OptionError(msg)
    if not table.exists:
        return Replayed()
    flow = checked(pipeline, spark, table.rows().drop(*QUARANTINED))
    run = _Replay(pipeline, flow, table, _Table(spark, f"{pipeline.quarantine}.replay"))
    finished = run.finish().tried if run.is_open else 0
    found = run.find(where, limit)
    if found is None:
        return Replayed(finished=finished)
    run.hold(*found)
    told = run.finish()
    return Replayed(**vars(told) | {"finished": finished})


class Version(NamedTuple):
    """A version of a table, and its time in milliseconds since 1970."""

    number: int
    millis: int


@dataclass(frozen=True)
class _Table:
    """A Delta table by its path."""

    spark: SparkSession
    path: str

    @property
    def exists(self) -> bool:
        return properties_of(self.spark, self.path) is not None

    @property
    def id(self) -> str:
        return str(self._one(f"DESCRIBE DETAIL {sql_name(self.path)}")["id"])

    @property
    def last(self) -> Version:
        told = self._one(f"DESCRIBE HISTORY {sql_name(self.path)} LIMIT 1")
        return Version(int(told["version"]), int(told["timestamp"].timestamp() * 1000))

    def _one(self, query: str) -> Any:  # noqa: ANN401 - a Row
        return self.spark.sql(query).collect()[0]

    def rows(self, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(
            self.path
        )


@dataclass(frozen=True)
class _Replay:
    """The steps of a replay; each can be done again."""

    pipeline: Pipeline
    flow: Flow
    quarantine: _Table
    held: _Table
    """What was found of the rows at hand; empty when all is done."""

    @property
    def is_open(self) -> bool:
        """Whether a replay was cut off."""
        return self.held.exists and not self.held.rows().isEmpty()

    @property
    def _id(self) -> str:
        return f"replay {self.quarantine.id}"

    def find(self, where: str | None, limit: int | None) -> tuple[DataFrame, Version] | None:
        """Give the rows to bring back, and the quarantine's version; None if there are none."""
        version = self.quarantine.last
        rows = self.quarantine.rows(version.number)
        if where is not None:
            try:
                rows = rows.where(where)
            except (AnalysisException, ParseException) as error:
                told = str(error).splitlines()[0]
                msg = f"--where {where!r} is not understood: {told}; it has {rows.columns}"
                raise OptionError(msg) from None
        rows = rows if limit is None else rows.orderBy(TIME, ROW).limit(limit)
        return None if rows.isEmpty() else (rows, version)

    def hold(self, rows: DataFrame, version: Version) -> None:
        """Join, and write down what was found, in one transaction."""
        asked = rows.select(*map(quoted, self.flow.stream.names), ROW, ATTEMPTS)
        joined = enriched(asked, self.pipeline).persist()
        try:
            good, missing = parted(joined, chosen_marks(joined, None))
            dropped = asked.join(joined.select(ROW).distinct(), ROW, "left_anti")
            dropped = dropped.select(ROW, ATTEMPTS, F.lit(_DROPPED).alias(REASON))
            missing = missing.select(ROW, ATTEMPTS, REASON, ENRICHMENT)
            for members in self._writer.members(rows.sparkSession):
                good = members.filled(good, version.millis)
            found = arranged(good, [(ROW, ROW), (ATTEMPTS, ATTEMPTS), *self._numbered])
            for more in (missing, dropped):
                found = found.unionByName(more, allowMissingColumns=True)
            self._write(found.withColumn(_VERSION, F.lit(version.number)), version.number)
        finally:
            joined.unpersist()

    @property
    def _writer(self) -> Batchwise:
        return Batchwise(self.pipeline, self.flow, lambda rows: rows, self._id)

    @property
    def _numbered(self) -> list[tuple[str, str]]:
        """The columns that reach the sink, and what they are called on the way."""
        return [(old, f"c{i}") for i, (old, _) in enumerate(self.flow.columns)]

    def _write(self, found: DataFrame, version: int) -> None:
        path = self.held.path
        write_delta(found, path, self._id, version, mode="overwrite", overwriteSchema="true")

    def finish(self) -> Replayed:
        """Write what was found to the sink, then take it out of the quarantine, then forget it."""
        held = self.held.rows()
        told, version = self._told(held)
        pairs = zip(self._numbered, self.flow.columns, strict=True)
        columns = [(number, new) for (_, number), (_, new) in pairs]
        good = arranged(held.where(F.col(REASON).isNull()), columns)
        write_batch(self.pipeline.sink, good, self._id, version)
        self._take_out(held)
        held.limit(0).write.format("delta").mode("overwrite").save(self.held.path)
        return told

    def _told(self, held: DataFrame) -> tuple[Replayed, int]:
        """Count what was found, and give the version of the quarantine that it was found of."""
        reason = F.coalesce(REASON, F.lit(MATCHED))
        groups = held.groupBy(reason.alias("reason"), _VERSION).agg(
            F.countDistinct(ROW).alias("rows"), F.count(F.lit(1)).alias("written")
        )
        found = {row["reason"]: row for row in groups.collect()}
        counts = {name: row["rows"] for name, row in found.items()}
        matched, dropped = counts.pop(MATCHED, 0), counts.pop(_DROPPED, 0)
        told = Replayed(
            tried=matched + dropped + sum(counts.values()),
            matched=matched,
            dropped=dropped,
            left=counts,
            written=found[MATCHED]["written"] if matched else 0,
        )
        return told, int(next(iter(found.values()))[_VERSION])

    def _take_out(self, held: DataFrame) -> None:
        """Delete the rows that are done, count the attempts of the others; both in one commit."""
        stays = F.col(REASON).isNotNull() & (F.col(REASON) != _DROPPED)
        found = held.select(ROW, stays.alias("stays"), REASON, ENRICHMENT, ATTEMPTS).distinct()
        found.createOrReplaceTempView(_FOUND)
        # Attempts are set, not added to: done again, this changes nothing.
        self.quarantine.spark.sql(
            f"MERGE INTO {sql_name(self.quarantine.path)} q USING {_FOUND} f ON q.{ROW} = f.{ROW} "
            f"WHEN MATCHED AND NOT f.stays THEN DELETE WHEN MATCHED THEN UPDATE SET "
            f"{REASON} = f.{REASON}, {ENRICHMENT} = f.{ENRICHMENT}, {ATTEMPTS} = f.{ATTEMPTS} + 1"
        )
        self.quarantine.spark.catalog.dropTempView(_FOUND)
