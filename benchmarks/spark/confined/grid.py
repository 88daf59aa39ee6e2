"""What is measured with a master larger than memory, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from benchmarks.harness.command import Grid, option
from benchmarks.spark.data import ROW_BYTES
from semistream.units import parse_bytes

LARGEST = 200_000_000
"""Rows of a master of 24 GB, more than most machines have memory: behind ``--full``."""
BOUNDS = ("none", "bound")
SPARK = ("default", "sort-merge")
STORES = ("duckdb", "duckdb-batch", "lmdb", "rocksdb", "rocksdb-async")
ALL = (*BOUNDS, "enrich", *SPARK, *STORES)
HOWS = ("left", "inner")
_AT_LARGEST = ("none", "enrich", "default", "duckdb")  # the others were compared at 50M
_LEAST_CACHE = 128 << 20  # for the code of Spark and Python, whose files are in it too


@dataclass(frozen=True)
class Cell:
    """One setting."""

    rows: int
    how: str
    batch_rows: int
    share: float
    """The budget, as a share of the master's bytes."""
    exponent: float
    realistic: bool = False
    """Whether names, categories and prices are as in a shop, not random letters and numbers."""

    @property
    def label(self) -> str:
        """The setting in words."""
        return (
            f"R = {self.rows:,}{', realistic rows' if self.realistic else ''}, {self.how}, "
            f"Zipf {self.exponent:g}, {self.share:.0%}, batches of {self.batch_rows:,}"
        )


@dataclass(frozen=True)
class ConfinedGrid(Grid):
    """The middle is the first value of each tuple; the others vary it one at a time."""

    systems: tuple[str, ...] = option(ALL, "Only this system.", "system", known=ALL)
    rows: tuple[int, ...] = option((20_000_000, 50_000_000), "Rows of a master.")
    hows: tuple[str, ...] = option(HOWS, "Only this join.", "how", known=HOWS)
    batch_rows: tuple[int, ...] = option((500_000, 100_000, 1_000_000), "Rows per micro-batch.")
    small_batches: int = 10_000
    shares: tuple[float, ...] = option((0.05, 0.01, 0.10), "A budget, as a share of R.", "share")
    exponents: tuple[float, ...] = option((1.0, 0.5, 1.2), "A Zipf exponent.", "exponent")
    realistic: bool = option(False, "Realistic rows in all cells, not in one.")
    middle: bool = option(False, "Only the first value of each option, with all batches and joins.")
    full: bool = option(False, "Also a master of 200M rows (24 GB), without a cgroup.")
    unconfined: bool = option(False, "No cgroup: the master is larger than the machine's memory.")
    options: tuple[str, ...] = option((), "An option of enrich, such as read=direct.", "option")
    rounds: int = option(2, "The number of samples; every system has its turn in each.")
    warm: float = option(15.0, "Seconds for which each system runs before it is timed.")
    warm_batches: int = 3
    """At least: the first may take longer than all of ``warm``, and caches are empty in it."""
    seconds: float = option(10.0, "What the counted batches of a turn take, about.")
    limit: float = option(180.0, "Seconds after which a query is ended; what it did counts.")
    device_seconds: float = 1.5
    """For each of the disk's two speeds, before every turn: a shared disk changes by the minute."""
    stream_rows: int = 10_000_000
    """In files; no batch comes twice, or caches would know it."""
    most_batches: int = 300
    heap: int = option(1 << 30, "Spark's heap, which is taken at once.", read=parse_bytes)
    non_heap: int = option(
        320 << 20,  # measured: classes, compiled code, threads, network buffers
        "What the JVM needs beside its heap.",
        read=parse_bytes,
    )
    workers: int = option(
        384 << 20,  # measured: the driver, the daemon, two workers, and 250,000 rows in each
        "What Python processes need beside the budget.",
        read=parse_bytes,
    )
    cache_fraction: float = 0.2
    """Of R, that the page cache may hold."""
    prepare_memory: str = "4g"
    """Heap of the process outside of the cgroup that prepares tables and compares rows."""
    seed: int = 0

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All settings."""
        base = Cell(
            self.rows[0], self.hows[0], self.batch_rows[0], self.shares[0], self.exponents[0],
            self.realistic,
        )  # fmt: skip
        middle = [
            replace(base, how=how, batch_rows=batch)
            for how, batch in product(self.hows, self.batch_rows)
        ]
        largest = [replace(base, rows=LARGEST)] if self.full else []
        if self.middle:
            return (*middle, *largest)
        others = [
            *(replace(base, rows=rows) for rows in self.rows[1:]),
            *(replace(base, share=share) for share in self.shares[1:]),
            *(replace(base, exponent=exponent) for exponent in self.exponents[1:]),
            replace(base, batch_rows=self.small_batches),
            replace(base, realistic=True),
        ]
        return tuple(dict.fromkeys((*middle, *others, *largest)))

    @property
    def steps(self) -> int:
        return len(self.cells)

    def systems_of(self, cell: Cell) -> tuple[str, ...]:
        """Return who is measured in a cell."""
        names = _AT_LARGEST if cell.rows >= LARGEST else ALL
        return tuple(name for name in self.systems if name in names)

    def batches_of(self, batch_rows: int) -> int:
        """Return how many batches of this size there are in files, at least six."""
        return max(6, min(self.most_batches, self.stream_rows // batch_rows))

    def is_confined(self, cell: Cell) -> bool:
        """Whether there is a cgroup."""
        return not self.unconfined and cell.rows < LARGEST

    def compose_limit(self, cell: Cell, budget: int) -> dict[str, int]:
        """Return the parts of the cgroup's limit, in bytes.

        Examples
        --------
        >>> grid, cell = ConfinedGrid(), ConfinedGrid().cells[0]
        >>> parts = grid.compose_limit(cell, budget=120_000_000)
        >>> parts["page cache"], round(sum(parts.values()) / 1e9, 2)
        (480000000, 2.41)
        """
        cache = int(self.cache_fraction * cell.rows * ROW_BYTES)
        return {
            "heap": self.heap,
            "non-heap": self.non_heap,
            "workers": self.workers,
            "budget": budget,
            "page cache": max(cache, _LEAST_CACHE),
        }

    def quick(self) -> ConfinedGrid:
        return replace(
            self,
            rows=(200_000,),
            hows=("left",),
            batch_rows=(20_000,),
            shares=(0.2,),
            exponents=(1.0,),
            middle=True,
            rounds=1,
            warm=0.5,
            seconds=0.3,
            limit=60.0,
            device_seconds=0.2,
            stream_rows=200_000,
            prepare_memory="1g",
        )
