"""Files wherever Spark has them: on this machine, in HDFS, in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["located", "moved"]


def located(spark: SparkSession, path: str, *parts: str) -> tuple[Any, Any]:
    """Give Hadoop's file system of a path, and the path, or what is in it, as Hadoop has it."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    at = jvm.org.apache.hadoop.fs.Path(path)
    files = at.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    for part in parts:
        at = jvm.org.apache.hadoop.fs.Path(at, part)
    return files, at


def moved(spark: SparkSession, old: str, new: str) -> bool:
    """Give a file or folder another name, unless something has it; tell whether it has it now."""
    files, at = located(spark, old)
    _, to = located(spark, new)
    # Some file systems would put a folder into one that is there.
    return not files.exists(to) and bool(files.rename(at, to))
