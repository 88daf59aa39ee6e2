"""Measuring service rates: every algorithm, budget and way of reading, beside the bound."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.bench.machine import describe, resident_bytes
from semistream.join import Join
from semistream.master import build_master, open_master
from semistream.workloads import Stream, Zipf, master_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.master import Master

__all__ = ["Grid", "Rate", "measure", "prepare"]

_BATCH = 65_536
_SMALL_BATCH = 1_024  # for algorithms that take seconds for a large one


@dataclass(frozen=True)
class Grid:
    """What is measured."""

    algorithms: tuple[str, ...]
    rows: int = 2_000_000
    row_bytes: int = 120
    stream_bytes: int = 20
    exponent: float = 1.0
    shares: tuple[float, ...] = (0.01, 0.05, 0.10, 0.20)
    """Budgets, as shares of the master's bytes."""
    reads: tuple[str, ...] = ("mapped", "direct")
    seconds: float = 1.0
    """How long each sample takes."""
    rounds: int = 5
    """Samples; in each round every algorithm has its turn, so that noise hits all alike."""
    page_bytes: str = "128KB"
    seed: int = 0

    @property
    def cells(self) -> int:
        """How many pairs of algorithm and setting there are."""
        return len(self.algorithms) * len(self.shares) * len(self.reads)


@dataclass(frozen=True)
class Rate:
    """The samples of one algorithm in one setting, in stream rows a second."""

    algorithm: str
    read: str
    share: float
    memory: int
    samples: tuple[float, ...]
    bound: tuple[float, ...]
    """What Arrow's gather from the whole master in memory reached in the same rounds."""
    resident: int
    """Bytes of the master that the operating system held afterwards."""
    metrics: dict[str, int] = field(default_factory=dict)
    memory_used: int = 0
    """The most that was counted as held."""

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.samples)

    @property
    def ratio(self) -> float:
        """The median of the ratios to the bound, round by round."""
        return statistics.median(a / b for a, b in zip(self.samples, self.bound, strict=True))


def prepare(grid: Grid, folder: Path) -> Path:
    """Build the master that the grid asks for, unless it is there already; give its path."""
    path = folder / f"master-{grid.rows}x{grid.row_bytes}-{grid.page_bytes}"
    if not (path / "manifest.json").exists():
        source = master_table(grid.rows, grid.row_bytes)
        build_master(source, path, key="key", page_bytes=grid.page_bytes, filter=False)
    return path


def measure(grid: Grid, path: Path, done: Callable[[str], None]) -> dict[str, Any]:
    """Run the grid on one thread; give a record that can be written as JSON."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    bound = _Bound(grid)
    rates = []
    for read in grid.reads:
        master = open_master(path, read)
        for share in grid.shares:
            rates += _setting(grid, master, share, bound, done)
    return {
        "what": "service rate in stream rows a second, one thread",
        "machine": describe(),
        "grid": asdict(grid),
        "rates": [asdict(rate) | {"median": rate.median, "ratio": rate.ratio} for rate in rates],
    }


def _setting(
    grid: Grid, master: Master, share: float, bound: _Bound, done: Callable[[str], None]
) -> list[Rate]:
    """Measure all algorithms in one setting, round by round."""
    memory = int(share * grid.rows * grid.row_bytes)
    runs = {name: _Run(grid, master, name, memory) for name in grid.algorithms}
    for name, run in runs.items():
        done(f"{master.read} {share:.0%} {name}")
        run.warm_up()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    bounds = []
    for _ in range(grid.rounds):
        bounds.append(bound.sample(grid.seconds / 2))
        for name, run in runs.items():
            samples[name].append(run.sample(grid.seconds))
    held = resident_bytes(master.path / master.manifest.name("pages"))
    return [
        Rate(
            name,
            master.read,
            share,
            memory,
            tuple(samples[name]),
            tuple(bounds),
            held,
            run.join.metrics.as_dict(),
            run.most_used,
        )
        for name, run in runs.items()
    ]


class _Run:
    """One join and the stream that feeds it."""

    def __init__(self, grid: Grid, master: Master, algorithm: str, memory: int) -> None:
        stream = _stream(grid)
        self.join = Join(
            master, stream.schema, on="key", memory=memory, algorithm=algorithm, filter=False
        )
        rows = _SMALL_BATCH if algorithm == "inlj" else _BATCH
        self._batches: Iterator[pa.RecordBatch] = stream.batches(None, rows)
        self._seconds = grid.seconds
        self.most_used = 0

    def warm_up(self) -> None:
        """Fill the window and let the cache settle: four windows of rows, or four samples' time."""
        window = int(self.join.plan.settings["window_rows"])
        spent = 0.0
        while self.join.metrics.answered < 4 * window and spent < 4 * self._seconds:
            spent += self._offer()

    def sample(self, seconds: float) -> float:
        """Give the rows answered in a second, over about so many seconds."""
        before, spent = self.join.metrics.answered, 0.0
        while spent < seconds:
            spent += self._offer()
        return (self.join.metrics.answered - before) / spent

    def _offer(self) -> float:
        """Offer one batch; give the seconds it took, the making of the batch not counted."""
        batch = next(self._batches)
        start = time.perf_counter()
        for _ in self.join.offer(batch):
            pass
        spent = time.perf_counter() - start
        self.most_used = max(self.most_used, self.join.memory_used.total)
        return spent


class _Bound:
    """Arrow's own gather of the same stream from the whole master in memory."""

    def __init__(self, grid: Grid) -> None:
        # The master's keys are 0, 1, 2, …: a key is its row's number, so no index is needed.
        table = master_table(grid.rows, grid.row_bytes).read_all().drop_columns(["key"])
        self._master = table.combine_chunks().to_batches()[0]
        self._batches = _stream(grid).batches(None, _BATCH)

    def sample(self, seconds: float) -> float:
        """Give the rows gathered in a second."""
        rows, spent = 0, 0.0
        while spent < seconds:
            batch = next(self._batches)
            start = time.perf_counter()
            found = self._master.take(batch.column("key"))
            pa.RecordBatch.from_arrays(
                [*batch.columns, *found.columns], names=[*batch.schema.names, *found.schema.names]
            )
            spent += time.perf_counter() - start
            rows += batch.num_rows
        return rows / spent


def _stream(grid: Grid) -> Stream:
    return Stream(Zipf(grid.rows, grid.exponent), seed=grid.seed, row_bytes=grid.stream_bytes)
