"""A source without rows, which has Spark run a micro-batch from time to time.

Spark makes a micro-batch when a source has something new. Rows that wait must come out although
nothing else does, and in the order of batches, in which alone they can be written exactly once. So
the stream has a second source beside it, whose offset is the time. A run that ends when all is done
meets one beat, its own, though the run before it was but a moment ago.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Heartbeat", "add_heartbeat"]


def add_heartbeat(stream: DataFrame, seconds: float) -> DataFrame:
    """Return a stream that has a micro-batch at least so often, be it without rows."""
    spark = stream.sparkSession
    spark.dataSource.register(Heartbeat)
    # Else a run that ends when all is done would take all that is there in one batch. Spark looks
    # at it in the query's thread, some time after its start, so it stays; it concerns no other
    # queries but such whose sources could not end by themselves, and those do the same in more
    # batches.
    spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
    reader = spark.readStream.format(Heartbeat.name()).schema(stream.schema)
    return stream.unionByName(reader.option("seconds", str(seconds)).load())


class Heartbeat(DataSource):
    """A source without rows whose offset grows with time."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "semistream-heartbeat"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return a reader."""
        return _Reader(float(self.options["seconds"]))


class _Reader(DataSourceStreamReader):
    def __init__(self, seconds: float) -> None:
        self._seconds, self._run = seconds, int(time.time() * 1000)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"beat": 0, "run": 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"beat": int(time.time() / self._seconds), "run": self._run}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        return iter(())
