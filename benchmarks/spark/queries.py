"""Streaming queries under measurement: what is called in a process that has a Spark session."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark.data import Batches
from benchmarks.spark.systems import SYSTEMS, Setting
from semistream.errors import SemistreamError

SCHEMA = "product_id long, sale long, quantity int"
DROPPED = 2
"""The first batches of a query, in which code is still compiled, are not counted."""
_LOOK = 0.2  # seconds between two looks at a query


class DifferentRowsError(SemistreamError):
    """Two systems that are compared gave different rows."""


@dataclass(frozen=True)
class Enough:
    """When a query has done enough: batches that count have taken so many seconds."""

    dropped: int
    """The first batches, which do not count."""
    seconds: float
    least: int = 1

    def of(self, milliseconds: Sequence[int]) -> bool:
        """Whether these batches are enough.

        Examples
        --------
        >>> Enough(2, 1.0).of([900, 900, 900]), Enough(2, 1.0).of([900, 900, 600, 600])
        (False, True)
        """
        counted = milliseconds[self.dropped :]
        return len(counted) >= self.least and sum(counted) >= 1000 * self.seconds


def time_batches(
    system: str, at: Setting, batches: Batches, limit: float, enough: Enough | None = None
) -> list[int]:
    """Return the milliseconds that each micro-batch takes, all of it, from trigger to commit."""
    with finished(system, at, batches, limit, enough) as query:
        return milliseconds(query)


def warm_up(
    system: str, at: Setting, batches: Batches, seconds: float, least: int = 1, limit: float = 0
) -> None:
    """Run a query for a while, as one that has run for long: by then the JVM has compiled it.

    It is ended after so many seconds, or after ``limit`` where these are more, if until then it has
    not done ``least`` batches.
    """
    with suppress(SemistreamError):  # who does not end a batch in this time is slow anyway
        time_batches(system, at, batches, max(seconds, limit), Enough(0, seconds, least))


@contextmanager
def finished(
    system: str, at: Setting, batches: Batches, limit: float, enough: Enough | None = None
) -> Iterator[StreamingQuery]:
    """Run a query over the batches; return it when it has ended, within so many seconds.

    It ends by itself, for all that is in its folder is there at its start; or when it is enough.
    """
    spark = SparkSession.active()
    with tempfile.TemporaryDirectory(dir=batches.folder.parent) as scratch:
        source, checkpoint = Path(scratch) / "files", Path(scratch) / "checkpoint"
        source.mkdir()
        for path in batches.paths:
            os.link(path, source / path.name)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", batches.files)
        writer = SYSTEMS[system].writer(reader.parquet(str(source)), at)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        _wait(query, limit, enough)
        if not milliseconds(query):
            msg = f"not one batch in {limit:g} s"
            raise SemistreamError(msg)
        yield query


def _wait(query: StreamingQuery, limit: float, enough: Enough | None) -> None:
    """Wait until a query has ended, its time is over, or it has done enough."""
    start = time.monotonic()
    while not query.awaitTermination(_LOOK):  # type: ignore[arg-type]  # takes fractions
        spent = time.monotonic() - start
        if spent > limit or (enough is not None and enough.of(milliseconds(query))):
            query.stop()
            return


def milliseconds(query: StreamingQuery) -> list[int]:
    """Return what each batch took."""
    done = [p.durationMs for p in query.recentProgress if "addBatch" in p.durationMs]
    return [durations["triggerExecution"] for durations in done]


def warm(milliseconds: Sequence[int], dropped: int) -> Sequence[int]:
    """Leave out the first batches; of a query that was ended early the last one counts."""
    return milliseconds[dropped:] or milliseconds[-1:]


def fingerprint(system: str, at: Setting, batches: Batches) -> list[int]:
    """Return the count of a system's rows, and the sum of their hashes, in any order."""
    spark = SparkSession.active()
    rows = spark.read.schema(SCHEMA).parquet(*map(str, batches.paths))
    return count_and_hash(SYSTEMS[system].join(rows, at))


def count_and_hash(df: DataFrame) -> list[int]:
    """Return the count of rows, and the sum of their hashes."""
    hashes = F.sum(F.xxhash64(*df.columns).cast("decimal(38,0)"))
    totals = df.agg(F.count(F.lit(1)), F.coalesce(hashes, F.lit(0))).collect()[0]
    return [int(totals[0]), int(totals[1])]


def versions() -> dict[str, str]:
    """Return the versions that ran."""
    spark = SparkSession.active()
    system = spark.sparkContext._jvm.System  # type: ignore[union-attr]  # noqa: SLF001 - the one way
    return {
        "spark": spark.version,
        "java": system.getProperty("java.version"),
        "master": spark.sparkContext.master,
    }
