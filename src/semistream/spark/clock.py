"""The time of a micro-batch: noted by Spark before it starts, and the same when it is replayed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["batch_millis"]


def batch_millis(spark: SparkSession, checkpoint: str, number: int) -> int:
    """Give when a batch was planned, in milliseconds since 1970, from its checkpoint's log."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{number}")
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).open(path)  # noqa: SLF001
    try:
        text = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    return parse_millis(text)


def parse_millis(text: str) -> int:
    """Read the time in a file of the log: a version, what holds for the batch, the offsets.

    Examples
    --------
    >>> parse_millis('v1' + chr(10) + '{"batchTimestampMs":1794825482700}' + chr(10) + '{}')
    1794825482700
    """
    return int(json.loads(text.splitlines()[1])["batchTimestampMs"])
