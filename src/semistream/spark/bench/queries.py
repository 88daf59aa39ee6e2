"""Streaming queries under measurement: what is called in a process that has a Spark session."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql import SparkSession

from semistream.errors import SemistreamError
from semistream.spark.bench.systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from semistream.spark.bench.systems import Setting

__all__ = [
    "SCHEMA",
    "Batches",
    "count_and_hash",
    "fingerprint",
    "finished",
    "milliseconds",
    "time_batches",
    "versions",
]

SCHEMA = "product_id long, sale long, quantity int"


@dataclass(frozen=True)
class Batches:
    """Some micro-batches of a stream in files."""

    folder: Path
    files: int
    """To a micro-batch."""
    count: int
    start: int = 0

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        end = self.start + self.count
        return sorted(self.folder.iterdir())[self.start * self.files : end * self.files]


def time_batches(system: str, at: Setting, batches: Batches, limit: float) -> list[int]:
    """Give the milliseconds that each micro-batch takes, all of it, from trigger to commit."""
    with finished(system, at, batches, limit) as query:
        return milliseconds(query)


@contextmanager
def finished(system: str, at: Setting, batches: Batches, limit: float) -> Iterator[StreamingQuery]:
    """Run a query over the batches; give it when it has ended, within so many seconds.

    It ends by itself, for all that is in its folder is there at its start.
    """
    spark = SparkSession.active()
    with tempfile.TemporaryDirectory(dir=batches.folder.parent) as scratch:
        source, checkpoint = Path(scratch) / "files", Path(scratch) / "checkpoint"
        source.mkdir()
        for path in batches.paths:
            os.link(path, source / path.name)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", batches.files)
        df = SYSTEMS[system](reader.parquet(str(source)), at)
        writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(max(1, round(limit))):
            query.stop()
        if not milliseconds(query):
            msg = f"not one batch in {limit:g} s"
            raise SemistreamError(msg)
        yield query


def milliseconds(query: StreamingQuery) -> list[int]:
    """Give what each batch took."""
    done = [p.durationMs for p in query.recentProgress if "addBatch" in p.durationMs]
    return [durations["triggerExecution"] for durations in done]


def fingerprint(system: str, at: Setting, batches: Batches) -> list[int]:
    """Give the count of a system's rows, and the sum of their hashes: their order is no matter."""
    spark = SparkSession.active()
    rows = spark.read.schema(SCHEMA).parquet(*map(str, batches.paths))
    return count_and_hash(SYSTEMS[system](rows, at))


def count_and_hash(df: DataFrame) -> list[int]:
    """Give the count of rows, and the sum of their hashes."""
    hashes = F.sum(F.xxhash64(*df.columns).cast("decimal(38,0)"))
    found = df.agg(F.count(F.lit(1)), F.coalesce(hashes, F.lit(0))).collect()[0]
    return [int(found[0]), int(found[1])]


def versions() -> dict[str, str]:
    """Give what ran."""
    spark = SparkSession.active()
    system = spark.sparkContext._jvm.System  # type: ignore[union-attr]  # noqa: SLF001 - the one way
    return {
        "spark": spark.version,
        "java": system.getProperty("java.version"),
        "master": spark.sparkContext.master,
    }
