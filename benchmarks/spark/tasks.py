"""What Spark's tasks cost: a batch of one row, routing of rows to tasks, warm workers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.record import Record
from benchmarks.harness.samples import spread
from benchmarks.harness.table import Sheet
from benchmarks.spark import warmth
from benchmarks.spark.data import Batches, Products, Sales
from benchmarks.spark.engine import Caller, EngineError, Engines
from benchmarks.spark.queries import DROPPED, finished, time_batches, versions, warm
from benchmarks.spark.systems import Setting

_ROUTERS = {"by page": "enrich", "by hash": "hashed"}
"""Ours, and Spark's own hash of the key, for comparison."""


@dataclass(frozen=True)
class SparkGrid(Grid):
    """Sizes, and how many batches of each part."""

    rows: tuple[int, ...] = option((2_000_000, 10_000_000), "Rows of a master.")
    batch_rows: tuple[int, ...] = option((100_000, 1_000_000), "Rows per micro-batch.")
    share: float = 0.05
    """The budget, as a share of the master's bytes."""
    exponent: float = 1.0
    limit: float = 90.0
    """Seconds after which a query is ended; what it has done until then counts."""
    single_rounds: int = 4
    single_batches: int = 7
    """Batches of a single row in a round, `DROPPED` of which are not counted."""
    partitions: int = 8
    exponents: tuple[float, ...] = (1.0, 1.5)
    reads: tuple[str, ...] = ("mapped", "direct")
    routed_batches: int = 5
    workers: tuple[int, ...] = (2, 8)
    warm_batches: int = 20
    later_batches: int = 4
    """After the pause, and again after a worker was killed."""
    pause: float = option(
        130.0, "Seconds of idle time; Spark ends Python workers that are idle for 60."
    )
    driver_memory: str = "4g"
    seed: int = 0

    def quick(self) -> SparkGrid:
        return replace(
            self,
            rows=(min(self.rows),),
            limit=30.0,
            single_rounds=2,
            single_batches=5,
            routed_batches=3,
            warm_batches=5,
            later_batches=2,
            pause=1.0,
        )

    @property
    def steps(self) -> int:
        return 3


def measure(job: Job[SparkGrid]) -> Iterator[None]:
    """Measure a batch of one row, how evenly routing loads tasks, and how warm workers stay.

    In micro-batches of files, into no sink, on local[2] with 4 GB for the driver; warmth also after
    a pause and after a worker was killed. Rates beside Spark's own joins are in ``peers``.
    """
    masters = {"main": "local[2]"}
    masters |= {f"local[{workers}]": f"local[{workers}]" for workers in job.grid.workers}
    with Engines(masters, {"spark.driver.memory": job.grid.driver_memory}) as engines:
        yield from measure_parts(job, engines)


def measure_parts(job: Job[SparkGrid], engines: Caller) -> Iterator[None]:
    """Measure part by part; one that fails is named, and the others go on."""
    job.say("starting Spark")
    job.record["machine"] |= engines.call("main", versions)
    job.record |= {"dropped": DROPPED, "failed": {}}
    parts: dict[str, Callable[[Job[SparkGrid], Caller], Any]] = {
        "single": _measure_single,
        "routing": _measure_routing,
        "warmth": warmth.measure,
    }
    for name, part in parts.items():
        try:
            if name not in job.record:
                job.record[name] = part(job, engines)
        except EngineError as error:
            job.record["failed"][name] = str(error)
        yield


def _measure_single(job: Job[SparkGrid], engines: Caller) -> Record:
    """Time batches of one row with the join and without it, in turn, at the largest R."""
    grid, rows = job.grid, max(job.grid.rows)
    products = Products(rows, job.folder)
    at = replace(Setting.of(products, "left", grid.share), options={"check": False})
    batches = Sales(rows, grid.exponent, 1, grid.single_batches, files=1).prepare(job.folder)
    took: dict[str, list[list[int]]] = {"enrich": [], "none": []}
    for number in range(grid.single_rounds):
        for system in sorted(took, reverse=number % 2 == 1):
            took[system].append(engines.call("main", time_batches, system, at, batches, grid.limit))
    return {"rows": rows, "memory": at.memory, "milliseconds": took}


def _measure_routing(job: Job[SparkGrid], engines: Caller) -> list[Record]:
    """Return for every router, skew and read what each task of each batch did."""
    grid, entries = job.grid, []
    rows, batch_rows = min(grid.rows), max(grid.batch_rows)
    plain = Setting.of(Products(rows, job.folder), "left", grid.share)
    for exponent in grid.exponents:
        batches = Sales(rows, exponent, batch_rows, grid.routed_batches).prepare(job.folder)
        for read in grid.reads:
            options = {"partition": "key", "tasks": grid.partitions, "read": read, "check": False}
            at = replace(plain, options=options)
            for router, system in _ROUTERS.items():
                job.say(f"routing {router}, Zipf {exponent:g}, {read}")
                tasks = engines.call("main", tasks_of_batches, system, at, batches, grid.limit)
                about = {"router": router, "exponent": exponent, "read": read}
                about |= {"rows": rows, "batch_rows": batch_rows}
                entries.append(about | {"batches": tasks[DROPPED:]})
    return entries


def tasks_of_batches(
    system: str, at: Setting, batches: Batches, limit: float
) -> list[list[list[int]]]:
    """Return for each batch the tasks behind the shuffle: the milliseconds and the rows of each."""
    with finished(system, at, batches, limit) as query:
        return list(filter(None, map(_tasks, _stages(query))))


def _stages(query: StreamingQuery) -> list[int]:
    """Return the stages of a query in the order in which they were made."""
    context = SparkSession.active().sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - else tasks may be missing
    tracker = context.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(query.runId)))
    return sorted({stage for job in jobs if job is not None for stage in job.stageIds})


def _tasks(stage: int) -> list[list[int]]:
    """Return milliseconds and rows of a stage's tasks, if these rows come from a shuffle."""
    store = SparkSession.active().sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - the one way
    tasks = store.taskList(stage, 0, 1_000)
    metrics = [tasks.apply(number).taskMetrics().get() for number in range(tasks.size())]
    numbers = [[m.executorRunTime(), m.shuffleReadMetrics().recordsRead()] for m in metrics]
    return numbers if any(rows for _, rows in numbers) else []


def sheets(record: Record) -> Iterator[Sheet]:
    """Return the tables of a record; one that is not complete has some of them."""
    if "single" in record:
        yield _single(record)
    if "routing" in record:
        yield _routing(record)
    if "warmth" in record:
        yield warmth.sheet(record)
    if record["failed"]:
        yield Sheet("Failed", ("part", "why"), tuple(record["failed"].items()))


def _single(record: Record) -> Sheet:
    single, dropped = record["single"], record["dropped"]
    samples = {
        name: [took for each in rounds for took in warm(each, dropped)]
        for name, rounds in single["milliseconds"].items()
    }
    rows = [
        (label, spread(samples[name]).show(".0f", " ms"), str(len(samples[name])))
        for label, name in (("with the join", "enrich"), ("without", "none"))
    ]
    cost = statistics.median(samples["enrich"]) - statistics.median(samples["none"])
    rows.append(("what the join costs", f"{cost:.0f} ms", ""))
    title = f"A micro-batch of a single row, R = {single['rows']:,}"
    return Sheet(title, ("", "median (range)", "batches"), tuple(rows))


def _routing(record: Record) -> Sheet:
    """Return how much the most loaded task has to do: router, skew and read down."""

    def most_to_median(values: Sequence[int]) -> float:
        return max(values) / max(1.0, statistics.median(values))

    rows = []
    for entry in record["routing"]:
        loads = [
            spread(most_to_median([task[which] for task in tasks]) for tasks in entry["batches"])
            for which in (0, 1)
        ]
        about = (entry["router"], f"{entry['exponent']:g}", entry["read"])
        middle = statistics.median(task[0] for tasks in entry["batches"] for task in tasks)
        rows.append((*about, f"{middle:.0f} ms", *(load.show(unit="×") for load in loads)))
    entry = record["routing"][0]
    title = (
        f"Routing into {record['grid']['partitions']} partitions, batches of "
        f"{entry['batch_rows']:,} rows, R = {entry['rows']:,}"
    )
    heads = ("rows are routed", "Zipf", "read", "median task", "slowest to median")
    note = "by page is ours, by hash is Spark's of the key; median of batches (range)"
    return Sheet(title, (*heads, "most rows to median"), tuple(rows), note)


SPARK = Benchmark(
    "spark",
    "milliseconds of micro-batches on Spark, of enrichment and of others",
    SparkGrid,
    measure,
    sheets,
)
