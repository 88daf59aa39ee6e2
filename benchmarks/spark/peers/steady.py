"""A stream that comes steadily, for minutes: rows arrive at their time, whoever is behind."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import SparkSession

from benchmarks.spark.data import Products, Sales
from benchmarks.spark.engine import EngineError
from benchmarks.spark.peers.contest import prepare
from benchmarks.spark.queries import SCHEMA, Batches
from benchmarks.spark.systems import SYSTEMS, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.peers.grid import PeersGrid

__all__ = ["SYSTEMS_STEADY", "measure_steady", "time_steady"]

SYSTEMS_STEADY = ("none", "enrich", "default")
_DISTINCT = 300  # arrivals; then they come again


def measure_steady(
    grid: PeersGrid, folder: Path, engines: Caller, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give for every system what each micro-batch took, and how long its rows had waited."""
    products = Products(grid.steady_rows, folder)
    at = Setting.of(products, "left", grid.share)
    sales = Sales(products.keys, 1.0, grid.steady_batch, _DISTINCT, absent=grid.absent)
    arrivals = Batches(sales.prepare(folder), sales.files, _DISTINCT)
    for system in SYSTEMS_STEADY:
        say(f"{grid.steady_rate:,} rows/s for {grid.steady_seconds:g} s: {system}")
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
    return _told(done, arrived.times, grid.steady_batch)


class _Arrivals:
    """Links the files of a batch into a folder, each batch at its time."""

    def __init__(self, batches: Batches, folder: Path, every: float) -> None:
        paths = batches.paths
        self._batches = [paths[i : i + batches.files] for i in range(0, len(paths), batches.files)]
        self._folder, self._every = folder, every
        self._end = threading.Event()
        self.times: list[float] = []

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._arrive, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _arrive(self) -> None:
        start = time.time()
        for number, paths in enumerate(itertools.cycle(self._batches)):
            if self._end.wait(max(0.0, start + number * self._every - time.time())):
                return
            for part, path in enumerate(paths):
                os.link(path, self._folder / f"{number:06}-{part}.parquet")
            self.times.append(time.time())


def _told(
    done: Sequence[StreamingQueryProgress], arrived: Sequence[float], batch: int
) -> dict[str, list[int]]:
    """Give for each micro-batch when it began, what it took and had, and its first row's wait.

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
