"""Systems in turn: the same rows first, then the time of every micro-batch."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from benchmarks.harness.command import Job
from benchmarks.harness.record import Record
from benchmarks.spark.comparison import CHECKED_ABSENT, Comparison
from benchmarks.spark.data import Batches, Products, Sales
from benchmarks.spark.engine import Caller
from benchmarks.spark.peers.grid import Cell, PeersGrid
from benchmarks.spark.queries import DROPPED, Enough, time_batches, warm_up
from benchmarks.spark.systems import Setting


def database(job: Job[PeersGrid]) -> str:
    """Return the address of the PostgreSQL database, nothing if there is none."""
    return next((url for url in job.urls if url.startswith("postgresql")), "")


@dataclass
class Contest:
    """Systems that are measured in turn; those that failed are not tried again."""

    job: Job[PeersGrid]
    engines: Caller
    order: random.Random
    _comparison: Comparison = field(init=False)

    def __post_init__(self) -> None:
        self._comparison = Comparison(self.job.say, self.engines)

    @property
    def grid(self) -> PeersGrid:
        """What is measured."""
        return self.job.grid

    def measure(self, cell: Cell) -> Record:
        """Return the milliseconds of every batch in every round, system by system."""
        products = Products(cell.rows, self.job.folder, cell.duplicates)
        at = Setting.of(products, cell.how, cell.share, database(self.job))
        comparison, called = self._comparison, self._comparison.called
        checked = self._batches(cell, min(self.grid.batch_rows), 1, CHECKED_ABSENT)
        comparison.check(cell.systems, at, checked)
        self.job.say(cell.label)
        batches = self._batches(cell, cell.batch_rows, self.grid.batches_of(cell.batch_rows))
        able = comparison.able(cell.systems, at)
        rounds: dict[str, list[list[int]]] = {name: [] for name in able}
        why = {s: comparison.failure(s, at) for s in cell.systems if s not in rounds}
        for system in self.order.sample(list(rounds), len(rounds)):
            called(system, warm_up, at, batches, self.grid.warm)
        for _ in range(self.grid.rounds):
            for system in self.order.sample(list(rounds), len(rounds)):
                took, failure = called(system, time_batches, at, batches, *self._until)
                if failure:
                    why[system] = failure
                    del rounds[system]
                else:
                    rounds[system].append(took)
        return {"memory": at.memory, "milliseconds": rounds, "failed": why}

    @property
    def _until(self) -> tuple[float, Enough]:
        return self.grid.limit, Enough(DROPPED, self.grid.seconds, least=2)

    def _batches(self, cell: Cell, rows: int, count: int, absent: float | None = None) -> Batches:
        keys = Products(cell.rows, self.job.folder, cell.duplicates).keys
        share = self.grid.absent if absent is None else absent
        return Sales(keys, cell.exponent, rows, count, absent=share).prepare(self.job.folder)
