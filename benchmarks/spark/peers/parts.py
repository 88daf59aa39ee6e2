"""What is measured of some systems only: memory, growth of R, cores, and a steady stream."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.harness.command import Job
from benchmarks.harness.memory import Background, Footprint
from benchmarks.harness.record import Record
from benchmarks.spark.comparison import prepare
from benchmarks.spark.data import Batches, Products, Sales
from benchmarks.spark.engine import Caller, EngineError, Engines
from benchmarks.spark.peers.contest import database
from benchmarks.spark.peers.grid import PeersGrid
from benchmarks.spark.queries import DROPPED, SCHEMA, Enough, time_batches
from benchmarks.spark.systems import SYSTEMS, Setting

STEADY = ("none", "enrich", "default")
_MEMORY_OF = (
    *("enrich", "enrich-keys", "bound", "default", "shuffle-hash", "sort-merge", "broadcast"),
    *("jdbc", "delta", "duckdb", "lmdb", "rocksdb", "sqlite", "arrow-memory"),
)
_MEMORY_ROWS, _MEMORY_BATCHES = 100_000, 6
_MANY = 1_000_000  # rows of a batch that fill the budget of a larger master
# A heap grows as far as it may before anything is thrown away: this keeps it near what is in use.
_SMALL_HEAP = "-XX:+UseSerialGC -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10"
_COMPILING = 3  # runs that do not count: meanwhile the JVM compiles what runs often
_ARRIVALS = 300  # of different rows; then they come again


def timed(grid: PeersGrid, engines: Caller, system: str, at: Setting, stream: Batches) -> list[int]:
    """Return the milliseconds of micro-batches, until those that count have taken long enough."""
    enough = Enough(DROPPED, grid.seconds, least=2)
    took: list[int] = engines.call("main", time_batches, system, at, stream, grid.limit, enough)
    return took


def stream_of(grid: PeersGrid, products: Products, batch_rows: int, count: int = 0) -> Batches:
    """Make the sales of some products in batches of so many rows."""
    count = count or grid.batches_of(batch_rows)
    sales = Sales(products.keys, 1.0, batch_rows, count, absent=grid.absent)
    return sales.prepare(products.folder)


# -- memory of all processes of a session, beyond one that only reads the stream --------------


def measure_memory(job: Job[PeersGrid], config: dict[str, str]) -> Iterator[Record]:
    """Yield for every system the most that its processes held, each in a session of its own.

    Ours is measured with larger masters too, with a share of each and with a constant: what it
    holds beyond its budget must not grow.
    """
    grid = job.grid
    small = config | {
        "spark.driver.memory": grid.broadcast_memory,
        "spark.driver.extraJavaOptions": _SMALL_HEAP,
    }
    for system, rows, memory in memory_settings(grid):
        job.say(f"memory: {system}, R = {rows:,}, {memory >> 20} MiB")
        products = Products(rows, job.folder)
        products.master()  # to build it takes memory that is not the enrichment's
        at = Setting(products, "left", memory, url=database(job))
        many = _MANY if rows > grid.memory_rows else min(_MEMORY_ROWS, grid.memory_rows)
        batches = stream_of(grid, products, many, _MEMORY_BATCHES)
        about = {"system": system, "rows": rows, "memory": at.memory}
        try:
            yield about | _beyond_idle(system, at, batches, small, grid.limit)
        except EngineError as error:
            yield about | {"failed": str(error)}


def memory_settings(grid: PeersGrid) -> list[tuple[str, int, int]]:
    """Return the systems whose memory is measured, with the rows of the master and the budget."""
    systems = [name for name in _MEMORY_OF if name in grid.systems]
    memory = Setting.of(Products(grid.memory_rows, Path()), "left", grid.share).memory
    settings = [(name, grid.memory_rows, memory) for name in systems]
    if "enrich" in systems:
        grown = growth_settings(grid, Path())
        settings += [("enrich", at.products.rows, at.memory) for at, _ in grown]
    return list(dict.fromkeys(settings))


def _beyond_idle(
    system: str, at: Setting, batches: Batches, config: dict[str, str], limit: float
) -> Record:
    with Engines({"main": "local[2]"}, config) as engines:
        if missing := engines.call("main", prepare, system, at):
            return {"failed": missing}
        most = {}
        for when, which in (("idle", "none"), ("busy", system)):
            with Footprint(engines.pid("main"), itself=True) as footprint:
                engines.call("main", time_batches, which, at, batches, limit)
            most[when] = footprint.most
        return most


# -- as the master grows, and on one core and two ---------------------------------------------


def growth_settings(grid: PeersGrid, folder: Path) -> list[tuple[Setting, int]]:
    """Return every R, with a share of it as memory and a constant, and rows of a batch."""
    return [
        (Setting(products, "left", memory, {"read": read}), batch_rows)
        for products in (Products(rows, folder) for rows in grid.growth)
        for memory in dict.fromkeys((int(grid.share * products.bytes), grid.growth_memory))
        for read in ("mapped", "direct")
        for batch_rows in (max(grid.batch_rows), min(grid.batch_rows))
    ]


def measure_growth(job: Job[PeersGrid], engines: Caller) -> Iterator[Record]:
    """Yield times of large and small batches as R grows.

    The order is drawn, and Spark has run before: else whatever came first would be the slowest.
    """
    grid, settings = job.grid, growth_settings(job.grid, job.folder)
    job.say("growth: Spark warms up")
    for at, batch_rows in settings[:2]:
        with suppress(EngineError):
            timed(grid, engines, "enrich", at, stream_of(grid, at.products, batch_rows))
    order = random.Random(grid.seed)  # noqa: S311 - an order
    for at, batch_rows in order.sample(settings, len(settings)):
        rows = at.products.rows
        job.say(f"growth: R = {rows:,}, {at.memory >> 20} MiB, {batch_rows:,} rows a batch")
        about = {"rows": rows, "memory": at.memory, **at.options, "batch_rows": batch_rows}
        stream = stream_of(grid, at.products, batch_rows)
        try:
            took = [timed(grid, engines, "enrich", at, stream) for _ in range(grid.rounds)]
            yield about | {"milliseconds": took}
        except EngineError as error:
            yield about | {"failed": str(error)}


def measure_cores(job: Job[PeersGrid], config: dict[str, str]) -> Iterator[Record]:
    """Yield times on one processor and on two: all of Spark, Java and Python, is kept to them."""
    grid, batch_rows = job.grid, max(job.grid.batch_rows)
    at = Setting.of(Products(min(grid.rows), job.folder), "left", grid.share)
    stream = stream_of(grid, at.products, batch_rows)
    allowed = sorted(os.sched_getaffinity(0))
    for _ in range(grid.rounds):
        for count in (1, 2):
            job.say(f"on {count} of {len(allowed)} processors")
            os.sched_setaffinity(0, allowed[:count])  # what is started from here has it too
            try:
                with Engines({"main": f"local[{count}]"}, config) as engines:
                    for _ in range(_COMPILING + 1):
                        took = timed(grid, engines, "enrich", at, stream)
            finally:
                os.sched_setaffinity(0, allowed)
            yield {"cores": count, "batch_rows": batch_rows, "milliseconds": took}


# -- a stream that comes steadily, for minutes: rows arrive at their time, whoever is behind --


def measure_steady(job: Job[PeersGrid], engines: Caller) -> Iterator[Record]:
    """Yield for every system what each micro-batch took, and how long its rows had waited."""
    grid, products = job.grid, Products(job.grid.steady_rows, job.folder)
    at = Setting.of(products, "left", grid.share)
    arrivals = stream_of(grid, products, grid.steady_batch, _ARRIVALS)
    for system in STEADY:
        job.say(f"{grid.steady_rate:,} rows/s for {grid.steady_seconds:g} s: {system}")
        about = {"system": system, "rows": grid.steady_rows, "memory": at.memory}
        about |= {"rate": grid.steady_rate, "batch": grid.steady_batch, "warm": grid.steady_warm}
        try:
            engines.call("main", prepare, system, at)
            yield about | engines.call("main", time_steady, system, at, arrivals, grid)
        except EngineError as error:
            yield about | {"failed": str(error)}


def time_steady(
    system: str, at: Setting, arrivals: Batches, grid: PeersGrid
) -> dict[str, list[int]]:
    """Run a query while rows arrive; a micro-batch takes all that has come since the last.

    So whoever is slow has larger batches, and longer ones. What has been read is removed, or to
    list the folder would take ever longer.
    """
    every = grid.steady_batch / grid.steady_rate
    with tempfile.TemporaryDirectory(dir=at.products.folder) as scratch:
        source = Path(scratch) / "files"
        source.mkdir()
        reader = SparkSession.active().readStream.schema(SCHEMA).option("cleanSource", "delete")
        writer = SYSTEMS[system].writer(reader.parquet(str(source)), at)
        query = writer.option("checkpointLocation", f"{scratch}/checkpoint").start()
        try:
            with _Arrivals(arrivals, source, every) as arrived:
                query.awaitTermination(int(grid.steady_seconds))  # raises what ended it earlier
        finally:
            query.stop()
        done = [progress for progress in query.recentProgress if progress.numInputRows]
    return _waits(done, arrived.times, grid.steady_batch)


class _Arrivals(Background):
    """Links the files of a batch into a folder, each batch at its time."""

    def __init__(self, batches: Batches, folder: Path, every: float) -> None:
        paths = batches.paths
        self._batches = [paths[i : i + batches.files] for i in range(0, len(paths), batches.files)]
        self._folder, self._every = folder, every
        self.times: list[float] = []

    def work(self) -> None:
        start = time.time()
        for number, paths in enumerate(itertools.cycle(self._batches)):
            if self._end.wait(max(0.0, start + number * self._every - time.time())):
                return
            for part, path in enumerate(paths):
                os.link(path, self._folder / f"{number:06}-{part}.parquet")
            self.times.append(time.time())


def _waits(
    done: Sequence[StreamingQueryProgress], arrived: Sequence[float], batch: int
) -> dict[str, list[int]]:
    """Return for each micro-batch when it began, what it took and had, and its first row's wait.

    A row waits from its arrival until its batch is committed.
    """
    starts = [datetime.fromisoformat(p.timestamp).timestamp() for p in done]
    took = [int(p.durationMs["triggerExecution"]) for p in done]
    taken = [int(p.numInputRows) for p in done]
    before = itertools.accumulate(taken, initial=0)
    first = [arrived[min(rows // batch, len(arrived) - 1)] for rows in before][: len(done)]
    ends = [start + spent / 1000 for start, spent in zip(starts, took, strict=True)]
    return {
        "starts": [round(1000 * (start - arrived[0])) for start in starts],
        "milliseconds": took,
        "taken": taken,
        "waited": [round(1000 * (e - f)) for e, f in zip(ends, first, strict=True)],
    }
