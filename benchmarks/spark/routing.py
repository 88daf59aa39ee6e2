"""How evenly routing by key loads the tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from benchmarks.spark.data import Products, Sales
from benchmarks.spark.grid import DROPPED
from benchmarks.spark.queries import Batches, finished
from benchmarks.spark.systems import Setting
from benchmarks.spark.systems.ours import ENRICH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.grid import SparkGrid

__all__ = ["measure_routing", "tasks_of_batches"]

_ROUTERS = {"by page": ENRICH, "by hash": "hashed"}
"""Ours, and Spark's own hash of the key, for comparison."""


def measure_routing(
    grid: SparkGrid, folder: Path, engines: Caller, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give for every router, skew and read what each task of each batch did."""
    rows, batch_rows = min(grid.rows), max(grid.batch_rows)
    plain = Setting.of(Products(rows, folder), "left", grid.share)
    for exponent in grid.exponents:
        sales = Sales(rows, exponent, batch_rows, grid.routed_batches)
        batches = Batches(sales.prepare(folder), sales.files, sales.batches)
        for read in grid.reads:
            options = {"partition": "key", "tasks": grid.partitions, "read": read, "check": False}
            at = replace(plain, options=options)
            for router, system in _ROUTERS.items():
                say(f"routing {router}, Zipf {exponent:g}, {read}")
                tasks = engines.call("main", tasks_of_batches, system, at, batches, grid.limit)
                about = {"router": router, "exponent": exponent, "read": read}
                yield about | {"rows": rows, "batch_rows": batch_rows, "batches": tasks[DROPPED:]}


def tasks_of_batches(
    system: str, at: Setting, batches: Batches, limit: float
) -> list[list[list[int]]]:
    """Give for each batch the tasks behind the shuffle: the milliseconds and the rows of each."""
    with finished(system, at, batches, limit) as query:
        return list(filter(None, map(_tasks, _stages(query))))


def _stages(query: StreamingQuery) -> list[int]:
    """Give the stages of a query in the order in which they were made."""
    context = SparkSession.active().sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - tasks are told of in time
    tracker = context.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(query.runId)))
    return sorted({stage for job in jobs if job is not None for stage in job.stageIds})


def _tasks(stage: int) -> list[list[int]]:
    """Give milliseconds and rows of a stage's tasks, if these rows come from a shuffle."""
    store = SparkSession.active().sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - the one way
    found = store.taskList(stage, 0, 1_000)
    metrics = [found.apply(number).taskMetrics().get() for number in range(found.size())]
    tasks = [[m.executorRunTime(), m.shuffleReadMetrics().recordsRead()] for m in metrics]
    return tasks if any(rows for _, rows in tasks) else []
