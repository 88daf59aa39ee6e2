"""What is measured beside the alternatives, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from benchmarks.harness.command import Grid, option
from benchmarks.spark.systems import PUBLISHED

PARTS = ("cells", "flink", "memory", "growth", "cores", "steady")
"""What there is to measure."""

FULL = 50_000_000
"""Rows of the largest master, behind ``--full``."""
_PUBLISHED = 2_000_000  # rows of the largest master with which the papers' algorithms are measured
SPARK = ("default", "shuffle-hash", "sort-merge", "broadcast")
STORES = ("duckdb", "lmdb", "rocksdb", "sqlite")
IN_MEMORY = ("arrow-memory", "duckdb-memory", "polars-memory")
BATCHES = ("jdbc", "delta")
OURS = ("enrich", "enrich-keys")
STRONG = (*OURS, *SPARK, *BATCHES, *STORES)
BOUNDS = ("none", "bound")
ROW_BY_ROW = ("lmdb-rows", "rocksdb-rows", "sqlite-rows")
ALL = (*STRONG, *BOUNDS, *IN_MEMORY, *ROW_BY_ROW)
HOWS = ("left", "inner")


@dataclass(frozen=True)
class Cell:
    """One setting, and who is measured there."""

    rows: int
    how: str
    batch_rows: int
    systems: tuple[str, ...]
    exponent: float = 1.0
    share: float = 0.05
    """The budget, as a share of the master's bytes."""
    duplicates: int = 1
    """Rows of a key."""

    @property
    def label(self) -> str:
        """The setting in words."""
        several = f", {self.duplicates} rows a key" if self.duplicates > 1 else ""
        return (
            f"R = {self.rows:,}{several}, {self.how}, Zipf {self.exponent:g}, {self.share:.0%}, "
            f"batches of {self.batch_rows:,}"
        )


@dataclass(frozen=True)
class PeersGrid(Grid):
    """What is measured, one thing varied at a time around 2M rows, left, Zipf 1, 5 %."""

    parts: tuple[str, ...] = option(PARTS, "Only this part.", "part", known=PARTS)
    full: bool = option(False, "Also a master of 50M rows (24 GB on disk).")
    rows: tuple[int, ...] = option((2_000_000, 10_000_000), "Rows of a master.")
    batch_rows: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    hows: tuple[str, ...] = option(("left", "inner"), "Only this join.", "how", known=HOWS)
    exponents: tuple[float, ...] = (0.5, 1.2)
    share: float = 0.05
    """The budget, as a share of the master's bytes."""
    shares: tuple[float, ...] = (0.01, 0.10, 0.20)
    """Other budgets, for one setting."""
    duplicates: int = 3
    absent: float = 0.05
    """The share of stream rows without a match."""
    systems: tuple[str, ...] = option(ALL, "Only this system.", "system", known=ALL)
    rounds: int = option(2, "The number of samples; every system has its turn in each.")
    seconds: float = 2.0
    """What the counted batches of a round take, about."""
    warm: float = 4.0
    """Seconds for which each system runs in a cell before it is timed."""
    limit: float = 80.0
    """Seconds after which a query is ended; what it has done until then counts."""
    most_batches: int = 14
    """Of a round; of batches of 1M rows there are no more than 8M rows."""
    driver_memory: str = "4g"
    broadcast_memory: str = "8g"
    """Of the process that broadcasts the master."""
    memory_rows: int = 2_000_000
    steady_rows: int = 2_000_000
    steady_seconds: float = 600.0
    steady_rate: int = 50_000
    steady_batch: int = 10_000
    """Rows that arrive together."""
    steady_warm: float = 30.0
    """Seconds in which code is compiled and caches fill; what begins in them does not count."""
    growth: tuple[int, ...] = (2_000_000, 10_000_000)
    growth_memory: int = 64 << 20
    flink_rows: int = 400_000
    """Stream rows that Flink is timed with."""
    seed: int = 0

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All settings."""
        least, middle = min(self.rows), sorted(self.batch_rows)[len(self.batch_rows) // 2]
        plain = [
            Cell(rows, how, batch, self._at(rows, how, batch), share=self.share)
            for rows, how, batch in product(self.rows, self.hows, self.batch_rows)
            if how == "left" or batch > min(self.batch_rows) or len(self.batch_rows) == 1
        ]
        if least >= FULL:
            return tuple(plain)
        base = Cell(least, "left", middle, self._known((*STRONG, "none")), share=self.share)
        skewed = [replace(base, exponent=exponent) for exponent in self.exponents]
        several = [replace(base, duplicates=self.duplicates)] if self.duplicates > 1 else []
        ours = self._known((*OURS, *STORES, *BOUNDS))
        budgets = [
            replace(base, share=share, batch_rows=max(self.batch_rows), systems=ours)
            for share in self.shares
        ]
        return (*plain, *skewed, *several, *budgets)

    def _at(self, rows: int, how: str, batch_rows: int) -> tuple[str, ...]:
        """Return who is measured: bounds and slow ways at the least R, not with small batches."""
        if rows >= FULL:
            return self._known((*OURS, *SPARK, "duckdb", "none"))  # the others were compared at 10M
        names: tuple[str, ...] = (*STRONG, *BOUNDS)
        if rows == min(self.rows) and how == "left" and batch_rows > min(self.batch_rows):
            names += IN_MEMORY
        if self._is_middle(rows, how, batch_rows):
            names += ROW_BY_ROW
        if self._is_middle(rows, how, batch_rows) and self.systems == ALL and rows <= _PUBLISHED:
            return self._known(names) + PUBLISHED
        return self._known(names)

    def _is_middle(self, rows: int, how: str, batch_rows: int) -> bool:
        middle = sorted(self.batch_rows)[len(self.batch_rows) // 2]
        return (rows, how, batch_rows) == (min(self.rows), "left", middle)

    def _known(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name in self.systems)

    def batches_of(self, batch_rows: int) -> int:
        """Return how many batches of this size there are in files."""
        return max(3, min(self.most_batches, 8_000_000 // batch_rows))

    def complete(self) -> PeersGrid:
        if not self.full:
            return self
        return replace(self, rows=(*self.rows, FULL), growth=(*self.growth, FULL))

    def quick(self) -> PeersGrid:
        return replace(
            self,
            rows=(200_000,),
            batch_rows=(2_000, 20_000),
            exponents=(),
            share=0.2,
            shares=(),
            rounds=1,
            seconds=0.3,
            warm=0.3,
            limit=30.0,
            most_batches=4,
            memory_rows=200_000,
            steady_rows=200_000,
            steady_seconds=8.0,
            steady_rate=5_000,
            steady_batch=1_000,
            steady_warm=2.0,
            growth=(200_000,),
            flink_rows=20_000,
        )
