"""What is known of the executors before a query starts: how many tasks, how much memory."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from semistream.system.machine import process_memory
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "context_of",
    "executor_heap",
    "executors",
    "heap_growth",
    "is_local",
    "memory_warning",
    "setting",
    "tasks_at_once",
]

WORKER = 160 << 20
"""Bytes that a Python worker needs before it holds a row: interpreter, pyarrow, numba, kernels."""

_LEAST_OVERHEAD = 384 << 20  # as Spark has it
# local[4], local[*,3] (retries), local-cluster[2,4,1024] (executors, cores, MiB)
_MASTER = re.compile(r"local(-cluster\[\d+,|\[)\s*(?P<cores>\d+|\*)\s*(,.*)?\]")


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's context; over Spark Connect there is none."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


def setting(spark: SparkSession, name: str, default: str = "") -> str:
    """Return a setting of the session or of its cluster."""
    context = context_of(spark)
    if context is not None:
        return context.getConf().get(name, default) or default
    try:
        return spark.conf.get(name, default) or default
    except PySparkException:  # the server does not tell it
        return default


def executors(spark: SparkSession) -> int:
    """Return how many executors there are now; one where that is not known."""
    context = context_of(spark)
    if context is None:
        return 1
    known = context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001 - the one way
    return max(1, known - 1) if not is_local(spark) else 1


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run in the driver's own process."""
    return re.fullmatch(r"local(\[.*\])?", setting(spark, "spark.master", "local")) is not None


def heap_growth(spark: SparkSession) -> int:
    """Return the bytes that the heap of the driver's own JVM may yet take."""
    context = context_of(spark)
    if context is None or context._jvm is None:  # noqa: SLF001 - the one way
        return 0
    java = context._jvm.java.lang  # noqa: SLF001
    held = process_memory(java.ProcessHandle.current().pid())
    return max(0, int(java.Runtime.getRuntime().maxMemory()) - held)


def executor_heap(spark: SparkSession) -> int:
    """Return the bytes of an executor's heap."""
    return _mebibytes(setting(spark, "spark.executor.memory", "1g"))


def tasks_at_once(spark: SparkSession) -> int:
    """Return how many tasks an executor runs at once.

    A standalone cluster gives an executor all cores of its worker unless told otherwise; then the
    mean is taken.
    """
    return max(1, _cores(spark) // int(setting(spark, "spark.task.cpus", "1")))


def _cores(spark: SparkSession) -> int:
    """Return the cores of an executor."""
    named = _MASTER.fullmatch(setting(spark, "spark.master", "local"))
    if named and named["cores"]:
        return (os.cpu_count() or 1) if named["cores"] == "*" else int(named["cores"])
    cores, context = setting(spark, "spark.executor.cores"), context_of(spark)
    if cores or context is None:
        return int(cores or 1)
    return math.ceil(context.defaultParallelism / executors(spark))


def memory_warning(spark: SparkSession, memory: int, tasks: int) -> str | None:
    """Return a warning that names the setting which is too small for workers and their budget."""
    if is_local(spark):
        return None
    needed = memory + tasks * WORKER
    name, room = _room(spark)
    if needed <= room:
        return None
    return (
        f"enrich needs {format_bytes(needed)} beside the JVM in each executor: "
        f"memory={format_bytes(memory)}, and {format_bytes(WORKER)} for each of {tasks} Python "
        f"workers; there are {format_bytes(room)}. Set {name}={math.ceil(needed / 2**20)}m or more."
    )


def _room(spark: SparkSession) -> tuple[str, int]:
    """Return the setting that bounds Python workers, and its bytes."""
    limited = setting(spark, "spark.executor.pyspark.memory")
    if limited:
        return "spark.executor.pyspark.memory", _mebibytes(limited)
    overhead = setting(spark, "spark.executor.memoryOverhead")
    if overhead:
        return "spark.executor.memoryOverhead", _mebibytes(overhead)
    factor = float(setting(spark, "spark.executor.memoryOverheadFactor", "0.1"))
    heap = _mebibytes(setting(spark, "spark.executor.memory", "1g"))
    return "spark.executor.memoryOverhead", max(_LEAST_OVERHEAD, int(factor * heap))


def _mebibytes(size: str) -> int:
    """Read a size as Spark does: a number without unit is in MiB."""
    return parse_bytes(f"{size}MB" if size.isdigit() else size)
