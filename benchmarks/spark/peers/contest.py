"""Systems in turn: the same rows first, then the time of every micro-batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.command import Job
from benchmarks.harness.record import Record
from benchmarks.spark.data import Batches, Products, Sales
from benchmarks.spark.engine import Caller, EngineError
from benchmarks.spark.peers.grid import BOUNDS, Cell, PeersGrid
from benchmarks.spark.queries import (
    DROPPED,
    DifferentRowsError,
    Enough,
    fingerprint,
    time_batches,
    warm_up,
)
from benchmarks.spark.systems import SYSTEMS, Setting

_REFERENCE = "default"
"""All others must give the rows of Spark's own join."""
_CHECKED_ABSENT = 0.1


def database(job: Job[PeersGrid]) -> str:
    """Return the address of the PostgreSQL database, nothing if there is none."""
    return next((url for url in job.urls if url.startswith("postgresql")), "")


def prepare(system: str, at: Setting) -> str:
    """Make what a system needs; return why it cannot run, nothing if it can."""
    missing = SYSTEMS[system].missing(at)
    if not missing:
        SYSTEMS[system].prepare(at)
    return missing


@dataclass
class Contest:
    """Systems that are measured in turn; those that failed are not tried again.

    Parameters
    ----------
    failed
        Why a system is left out, by system, R, join and rows a key.
    """

    job: Job[PeersGrid]
    engines: Caller
    order: random.Random
    failed: dict[tuple[str, int, str, int], str] = field(default_factory=dict)
    _checked: set[tuple[str, int, str, int]] = field(default_factory=set)

    @property
    def grid(self) -> PeersGrid:
        """What is measured."""
        return self.job.grid

    def measure(self, cell: Cell) -> Record:
        """Return the milliseconds of every batch in every round, system by system."""
        products = Products(cell.rows, self.job.folder, cell.duplicates)
        at = Setting.of(products, cell.how, cell.share, database(self.job))
        self._check(cell, at)
        self.job.say(cell.label)
        batches = self._batches(cell, cell.batch_rows, self.grid.batches_of(cell.batch_rows))
        rounds: dict[str, list[list[int]]] = {name: [] for name in self._able(cell)}
        why = {s: self.failed[self._about(cell, s)] for s in cell.systems if s not in rounds}
        for system in self.order.sample(list(rounds), len(rounds)):
            self._called(system, warm_up, at, batches, self.grid.warm)
        for _ in range(self.grid.rounds):
            for system in self.order.sample(list(rounds), len(rounds)):
                took, failure = self._called(system, time_batches, at, batches, *self._until)
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

    def _check(self, cell: Cell, at: Setting) -> None:
        """Check that all systems give the rows of Spark's join, a part of which has no match."""
        new = [s for s in self._able(cell) if self._about(cell, s) not in self._checked]
        if not new:
            return
        batches = self._batches(cell, min(self.grid.batch_rows), 1, _CHECKED_ABSENT)
        self.job.say(f"R = {cell.rows:,}, {cell.how}: the same rows?")
        right, failure = self._called(_REFERENCE, fingerprint, at, batches)
        if failure:
            self.job.say(f"{_REFERENCE} gives no rows to compare with: {failure}")
        for system in new:
            self._prepare(cell, system, at)
            if self._about(cell, system) in self.failed:
                continue
            given, failure = self._called(system, fingerprint, at, batches)
            if failure:
                self.failed[self._about(cell, system)] = failure
            elif right is not None and given != right and system not in BOUNDS:
                msg = f"{system} and {_REFERENCE} give different rows: {given}, {right}, {at}"
                raise DifferentRowsError(msg)
            self._checked.add(self._about(cell, system))

    def _prepare(self, cell: Cell, system: str, at: Setting) -> None:
        about = self._about(cell, system)
        if SYSTEMS[system].unique and cell.duplicates > 1:
            self.failed[about] = "it has one row a key"
            return
        self.job.say(f"R = {cell.rows:,}: {SYSTEMS[system].label}")
        try:
            missing = self.engines.call("main", prepare, system, at)
        except EngineError as error:
            missing = str(error)
        if missing:
            self.failed[about] = missing

    def _able(self, cell: Cell) -> list[str]:
        return [s for s in cell.systems if self._about(cell, s) not in self.failed]

    def _about(self, cell: Cell, system: str) -> tuple[str, int, str, int]:
        return system, cell.rows, cell.how, cell.duplicates

    def _called(self, system: str, function: Callable[..., Any], *args: object) -> tuple[Any, str]:
        """Call a function for a system; return what it returns, and why it failed if it did."""
        try:
            where = system if SYSTEMS[system].alone else "main"
            return self.engines.call(where, function, system, *args), ""
        except EngineError as error:
            return None, str(error)
