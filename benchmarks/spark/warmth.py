"""How warm the tasks of later micro-batches are, beside one join that never ends."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.harness.command import Job
from benchmarks.harness.memory import python_workers
from benchmarks.harness.record import Record
from benchmarks.harness.table import Sheet
from benchmarks.spark.data import KEY, Batches, Products, Sales, cold_copy
from benchmarks.spark.engine import Caller
from benchmarks.spark.queries import finished, milliseconds
from benchmarks.spark.systems import Setting
from semistream.api import watch
from semistream.errors import SemistreamError
from semistream.join import Join
from semistream.master import open_master
from semistream.metrics import Metrics
from semistream.spark.metrics.report import BatchMetrics
from semistream.units import format_bytes

_OFFERED = 10_000  # rows that a join is given at once, as Spark gives them
_TOLD = 30.0  # seconds within which Spark has told of every batch


def measure(job: Job[Any], engines: Caller) -> Record:
    """Return the hit rate of every batch: of one join, and of each number of workers."""
    grid, folder = job.grid, job.folder
    rows, batch_rows = min(grid.rows), min(grid.batch_rows)
    at = Setting.of(Products(rows, folder), "left", grid.share)
    count = grid.warm_batches + 2 * grid.later_batches
    sales = Sales(rows, grid.exponent, batch_rows, count, files=max(grid.workers))
    batches = sales.prepare(folder)
    job.say("warmth: one join")
    about = {"rows": rows, "batch_rows": batch_rows, "memory": at.memory, "pause": grid.pause}
    one_join = _one_join(at, batches)
    with ExitStack() as stack:
        crews = [
            _Crew(workers, replace(at, copy=str(cold)), batches, engines, grid.limit)
            for workers in grid.workers
            for cold in [stack.enter_context(cold_copy(Path(at.master)))]
        ]
        _phases(job, crews)
    return about | {"one_join": one_join, "crews": [crew.record() for crew in crews]}


def _phases(job: Job[Any], crews: list[_Crew]) -> None:
    """Run batches, again after a pause, and again after the loss of a worker."""
    grid, say = job.grid, job.say
    for crew in crews:
        say(f"warmth: {crew.workers} workers")
        crew.go(grid.warm_batches)
    say(f"warmth: a pause of {grid.pause:g} s")
    time.sleep(grid.pause)
    for crew in crews:
        say(f"warmth: {crew.workers} workers after a pause")
        crew.after_pause()
        crew.go(grid.later_batches)
        say(f"warmth: {crew.workers} workers, one of them killed")
        crew.engines.call(crew.where, kill_a_worker)
        crew.go(grid.later_batches)


def kill_a_worker() -> None:
    """End a Python worker of this process's Spark by SIGKILL."""
    os.kill(python_workers()[0], signal.SIGKILL)


@dataclass
class _Crew:
    """The workers of one session."""

    workers: int
    at: Setting
    batches: Batches
    engines: Caller
    limit: float
    batches_done: list[Record] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    """Python workers after the last batch."""
    survived: int = 0
    """Workers that were there after the pause."""

    @property
    def where(self) -> str:
        return "main" if self.workers == 2 else f"local[{self.workers}]"

    def go(self, count: int) -> None:
        """Run the next batches."""
        part = replace(self.batches, start=len(self.batches_done), count=count)
        at = replace(self.at, options={"read": "direct", "check": False})
        self.batches_done += self.engines.call(self.where, metrics_of_batches, at, part, self.limit)
        self.running = set(self.engines.call(self.where, python_workers))

    def after_pause(self) -> None:
        """See which workers are still there."""
        self.survived = len(self.running & set(self.engines.call(self.where, python_workers)))

    def record(self) -> Record:
        """Return the hit rates, the most memory, and the workers that survived."""
        return {
            "workers": self.workers,
            "hit_rates": [round(batch["hit_rate"], 4) for batch in self.batches_done],
            "held": max(
                batch["host"] + self.workers * batch["task"] for batch in self.batches_done
            ),
            "survived_pause": self.survived,
        }


def metrics_of_batches(at: Setting, batches: Batches, limit: float) -> list[Record]:
    """Return the hit rate of each batch, and the most bytes that the host and a task held."""
    seen: list[BatchMetrics] = []
    watch(SparkSession.active(), seen.append)
    with finished("enrich", at, batches, limit) as query:
        expected, name = len(milliseconds(query)), str(query.id)
    end = time.monotonic() + _TOLD
    while sum(metrics.query == name for metrics in seen) < expected:
        if time.monotonic() > end:
            msg = f"Spark told of {len(seen)} of {expected} batches in {_TOLD:g} s"
            raise SemistreamError(msg)
        time.sleep(0.05)
    mine = sorted((m for m in seen if m.query == name), key=lambda m: m.batch)
    return [{"hit_rate": m.hit_rate, **_held(m.memory)} for m in mine]


def _held(memory: dict[str, int]) -> dict[str, int]:
    """Part what all tasks of a host have together from what each has for itself.

    Examples
    --------
    >>> _held({"host cache": 4, "window": 2, "output": 1})
    {'host': 4, 'task': 3}
    """
    host = sum(size for name, size in memory.items() if name.startswith("host "))
    return {"host": host, "task": sum(memory.values()) - host}


def _one_join(at: Setting, batches: Batches) -> list[float]:
    """Return the hit rate of each batch of one join that has the whole budget."""
    table = pq.read_table(batches.paths[0])
    join = Join(
        open_master(at.master, "direct"), table.schema, on=KEY, how="left", memory=at.memory
    )
    rates = []
    for number in range(batches.count):
        before = replace(join.metrics)
        for path in replace(batches, start=number, count=1).paths:
            for batch in pq.read_table(path).to_batches(_OFFERED):
                for _ in join.offer(batch):
                    pass
        rates.append(round(_hit_rate(before, join.metrics), 4))
    join.close()
    return rates


def _hit_rate(before: Metrics, after: Metrics) -> float:
    """Return the share of rows answered from memory among those that came in between."""
    hits = [m.cache_hits + m.looked_up + m.pinned_hits for m in (before, after)]
    return (hits[1] - hits[0]) / max(1, after.rows_in - before.rows_in)


def sheet(record: Record) -> Sheet:
    """Return hit rates: workers down, batches across."""
    warmth, grid = record["warmth"], record["grid"]
    after, killed = grid["warm_batches"], grid["warm_batches"] + grid["later_batches"]
    shown = {
        "batch 1": 0,
        "2": 1,
        str(after // 2): after // 2 - 1,
        str(after): after - 1,
        f"after {warmth['pause']:g} s": after,
        "a worker killed": killed,
        "last": -1,
    }
    one = warmth["one_join"]
    rows = [("one join", *(f"{one[i]:.1%}" for i in shown.values()), "", "")]
    for crew in warmth["crews"]:
        rates = crew["hit_rates"]
        behind = max(100 * (one[i] - rate) for i, rate in enumerate(rates[after - 1 :], after - 1))
        about = f"local[{crew['workers']}]"
        ends = (f"{behind:.1f} points", format_bytes(crew["held"]))
        rows.append((about, *(f"{rates[i]:.1%}" for i in shown.values()), *ends))
    survived = ", ".join(
        f"{crew['survived_pause']} of local[{crew['workers']}]" for crew in warmth["crews"]
    )
    title = (
        f"Rows answered from memory, direct reads, R = {warmth['rows']:,}, "
        f"{format_bytes(warmth['memory'])} in all, batches of {warmth['batch_rows']:,} rows"
    )
    note = f"most behind: from batch {after} on; workers that were still there after the pause: "
    heads = ("", *shown, "most behind one join", "all held at most")
    return Sheet(title, heads, tuple(rows), note + survived)
