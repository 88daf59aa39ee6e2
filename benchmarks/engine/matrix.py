"""The matrix: every algorithm at every budget, skew, way of reading and workload."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.memory import resident_bytes
from benchmarks.workload import WORKLOADS, Bound, Feed, Workload
from semistream.cost.run import Run, one_thread, rounded
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.master import open_master

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from semistream.master import FileMaster

__all__ = ["SLOW", "Cell", "Grid", "cell_of", "measure", "take_rounds"]

_EXTRA_EXPONENTS, _EXTRA_SHARES = (1.0,), (0.05, 0.10)
SLOW = ("inlj", "derakhshan")  # far slower than the others: measured where the papers do


class Cell(NamedTuple):
    """A setting in which algorithms are compared."""

    workload: str
    exponent: float
    read: str
    share: float

    def __str__(self) -> str:
        return f"{self.workload}, Zipf {self.exponent:g}, {self.read}, {self.share:.0%} of R"


def cell_of(record: Mapping[str, Any]) -> Cell:
    """Give the cell that a record is of."""
    return Cell(*(record[name] for name in Cell._fields))


@dataclass(frozen=True)
class Grid:
    """What is measured."""

    algorithms: tuple[str, ...]
    workloads: tuple[Workload, ...] = WORKLOADS
    exponents: tuple[float, ...] = (0.0, 0.5, 1.0, 1.2)
    reads: tuple[str, ...] = ("mapped", "direct")
    shares: tuple[float, ...] = (0.01, 0.05, 0.10, 0.20)
    """Budgets, as shares of the master's bytes."""
    seconds: float = 0.15
    """How long each sample takes."""
    rounds: int = 3
    """Samples; in each round every algorithm has its turn, so that noise hits all alike."""
    feed_rows: int = 4_000_000
    """Stream rows made beforehand, and offered again and again."""
    page_bytes: str = "128KB"
    seed: int = 0

    @property
    def warm_seconds(self) -> float:
        """The longest time for which a join runs, its window full, before its first sample."""
        return 10 * self.seconds

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All settings; the extra workloads have a few only."""
        return tuple(
            Cell(workload.name, exponent, read, share)
            for workload in self.workloads
            for exponent in self.exponents
            for read in self.reads
            for share in self.shares
            if not workload.extra or (exponent in _EXTRA_EXPONENTS and share in _EXTRA_SHARES)
        )

    def algorithms_of(self, cell: Cell) -> tuple[str, ...]:
        """Give the algorithms that are measured in a cell."""
        all_of_them = cell.workload == "1:1" and cell.exponent == 1.0
        return tuple(name for name in self.algorithms if all_of_them or name not in SLOW)

    def as_dict(self) -> dict[str, Any]:
        """Give the grid for a record."""
        return asdict(self)


def measure(
    grid: Grid, folder: Path, have: Collection[Cell], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Measure the cells that are not there yet; give a record of each as soon as it is done."""
    one_thread()
    for workload in grid.workloads:
        wanted = [c for c in grid.cells if c.workload == workload.name and c not in have]
        if not wanted:
            continue
        say(f"the master of {workload.name}")
        path, bound = workload.prepare(folder, grid.page_bytes), Bound(workload)
        for exponent in dict.fromkeys(cell.exponent for cell in wanted):
            feed = Feed.of(workload.stream(exponent, grid.seed), grid.feed_rows)
            for cell in (c for c in wanted if c.exponent == exponent):
                say(str(cell))
                yield _measure_cell(grid, cell, open_master(path, cell.read), feed, bound)


def _measure_cell(
    grid: Grid, cell: Cell, master: FileMaster, feed: Feed, bound: Bound
) -> dict[str, Any]:
    workload = next(w for w in grid.workloads if w.name == cell.workload)
    memory = int(cell.share * workload.bytes)
    runs, refused = _runs(grid.algorithms_of(cell), master, feed, memory)
    for run in runs.values():
        run.warm_up(grid.warm_seconds)
    bounds, samples = take_rounds(
        grid.rounds,
        lambda: bound.sample(feed, grid.seconds / 2),
        {name: partial(run.sample, grid.seconds) for name, run in runs.items()},
    )
    rates = {name: {"samples": samples[name], **run.facts()} for name, run in runs.items()}
    return {
        **cell._asdict(),
        "memory": memory,
        "bound": bounds,
        "resident": resident_bytes(master.path / master.manifest.name("pages")),
        "pages_bytes": master.manifest.pages_bytes,
        "rates": rates,
    } | ({"refused": refused} if refused else {})


def take_rounds(
    rounds: int, bound: Callable[[], float] | None, takers: Mapping[str, Callable[[], float]]
) -> tuple[list[int], dict[str, list[int]]]:
    """Take a sample of each in every round, each round beginning with another one."""
    bounds: list[int] = []
    samples: dict[str, list[int]] = {name: [] for name in takers}
    names = list(takers)
    for number in range(rounds):
        if bound is not None:
            bounds.append(rounded(bound()))
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            samples[name].append(rounded(takers[name]()))
    return bounds, samples


def _runs(
    algorithms: tuple[str, ...], master: FileMaster, feed: Feed, memory: int
) -> tuple[dict[str, Run], dict[str, str]]:
    """Make a join for each algorithm; those that refuse the budget say why."""
    runs, refused = {}, {}
    for name in algorithms:
        try:
            join = Join(master, feed.schema, on="key", memory=memory, algorithm=name)
        except BudgetError as error:
            refused[name] = str(error).split(";")[0]
            continue
        runs[name] = Run(join, feed.forever())
    return runs, refused
