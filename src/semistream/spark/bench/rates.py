"""Rows a second of enrichment, of Spark's own joins, and of the bound."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semistream.errors import SemistreamError
from semistream.spark.bench.data import Products, Sales
from semistream.spark.bench.engine import EngineError
from semistream.spark.bench.grid import DROPPED
from semistream.spark.bench.queries import Batches, fingerprint, time_batches
from semistream.spark.bench.systems import BOUND, ENRICH, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.spark.bench.engine import Caller
    from semistream.spark.bench.grid import SparkGrid

__all__ = ["DifferentRowsError", "measure_rates", "setting_of"]

_CHECKED_ABSENT = 0.1


class DifferentRowsError(SemistreamError):
    """Two systems that are compared gave different rows."""


def setting_of(grid: SparkGrid, products: Products, how: str) -> Setting:
    """Give what systems join with."""
    memory = int(grid.share * products.bytes)
    return Setting(str(products.master()), str(products.parquet()), how, memory)


def measure_rates(
    grid: SparkGrid, folder: Path, engines: Caller, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give a record of each cell as soon as it is done."""
    for rows in grid.rows:
        say(f"R = {rows:,}: the master")
        products = Products(rows, folder)
        contest = _Contest(grid, engines, random.Random(grid.seed))  # noqa: S311 - an order
        for how in grid.hows:
            at = setting_of(grid, products, how)
            say(f"R = {rows:,}, {how}: the same rows?")
            sales = Sales(rows, grid.exponent, min(grid.batch_rows), 1, absent=_CHECKED_ABSENT)
            contest.check(at, Batches(sales.prepare(folder), sales.files, 1))
            for batch_rows in grid.batch_rows:
                say(f"R = {rows:,}, {how}, batches of {batch_rows:,}")
                sales = Sales(rows, grid.exponent, batch_rows, grid.batches_of(batch_rows))
                found = contest.measure(at, sales.prepare(folder), sales)
                about = {"rows": rows, "how": how, "batch_rows": batch_rows, "memory": at.memory}
                yield about | found


@dataclass
class _Contest:
    """The systems at one size of R: those that failed there are not tried again."""

    grid: SparkGrid
    engines: Caller
    order: random.Random
    failed: dict[str, str] = field(default_factory=dict)

    def check(self, at: Setting, batches: Batches) -> None:
        """See that all systems give the same rows, a part of which has no match."""
        mine = self.engines.call("main", fingerprint, ENRICH, at, batches)
        for system in self.grid.joins:
            theirs = self._call(system, fingerprint, system, at, batches)
            if theirs is not None and theirs != mine:
                msg = f"{system} and enrich give different rows: {theirs} and {mine}, {at}"
                raise DifferentRowsError(msg)

    def measure(self, at: Setting, folder: Path, sales: Sales) -> dict[str, Any]:
        """Time every system in every round."""
        counts = {s: self._count(s, at, folder, sales) for s in (ENRICH, BOUND, *self.grid.joins)}
        rounds: dict[str, list[list[int]]] = {s: [] for s, count in counts.items() if count}
        for _ in range(self.grid.rounds):
            for system in self.order.sample(list(rounds), len(rounds)):
                batches = Batches(folder, sales.files, counts[system])
                took = self._call(system, time_batches, system, at, batches, self.grid.limit)
                if took is None:
                    del rounds[system]
                else:
                    rounds[system].append(took)
        return {"milliseconds": rounds, "failed": dict(self.failed)}

    def _count(self, system: str, at: Setting, folder: Path, sales: Sales) -> int:
        """Try a system; give how many batches it has in a round, 0 if it failed."""
        least = DROPPED + 1
        if sales.batches == least:
            return 0 if system in self.failed else least
        tried = Batches(folder, sales.files, least)
        took: list[int] | None = self._call(
            system, time_batches, system, at, tried, self.grid.limit
        )
        if took is None:
            return 0
        count = DROPPED + math.ceil(1000 * self.grid.seconds / max(1, took[-1]))
        return max(least, min(count, sales.batches))

    def _call(self, system: str, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """Call a function; None if it failed, now or before."""
        if system in self.failed:
            return None
        # The one that may take its process with it has one for itself.
        where = "broadcast" if system == "broadcast" else "main"
        try:
            return self.engines.call(where, function, *args)
        except EngineError as error:
            self.failed[system] = str(error)
            return None
