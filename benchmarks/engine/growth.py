"""Measuring what a larger master costs: at the same share of memory, and at a constant budget."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.engine.matrix import Cell, cell_of, take_rounds
from benchmarks.memory import resident_bytes
from benchmarks.summary import candidate
from benchmarks.workload import Feed, Workload
from semistream.cost.run import Run, one_thread
from semistream.cost.spread import spread
from semistream.join import Join
from semistream.master import open_master
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from semistream.master import FileMaster

__all__ = ["GrowthGrid", "best_published", "measure_growth"]


@dataclass(frozen=True)
class GrowthGrid:
    """What is measured."""

    algorithms: tuple[str, ...]
    rows: tuple[int, ...] = (2_000_000, 5_000_000, 10_000_000, 20_000_000)
    share: float = 0.05
    memory: int = 32 << 20
    """The constant budget."""
    reads: tuple[str, ...] = ("mapped", "direct")
    exponent: float = 1.0
    seconds: float = 0.5
    rounds: int = 3
    feed_rows: int = 4_000_000
    page_bytes: str = "128KB"

    def budgets(self, workload: Workload) -> dict[str, int]:
        """Give the two budgets by name."""
        return {"share": int(self.share * workload.bytes), "constant": self.memory}

    @property
    def points(self) -> int:
        """How many settings there are."""
        return len(self.rows) * len(self.reads) * 2


def best_published(matrix: dict[str, Any] | None, known: Iterable[str]) -> list[str]:
    """Give our algorithm and the two best others, by a record of the matrix if there is one.

    They are those with the best medians at 5 % of R, Zipf 1, 1:1, mapped.
    """
    names = list(known)
    mine = candidate(names)
    cells = {cell_of(cell): cell["rates"] for cell in matrix["cells"]} if matrix else {}
    rates = cells.get(Cell("1:1", 1.0, "mapped", 0.05), {})
    others = [name for name in rates if name != mine and name in names]
    others.sort(key=lambda name: spread(rates[name]["samples"]).middle, reverse=True)
    usual = [name for name in ("cachejoin", "moij", "hybridjoin") if name != mine]
    return [mine, *(others or usual)[:2]]


def measure_growth(
    grid: GrowthGrid, folder: Path, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give the record after every setting, each time with one point more."""
    one_thread()
    record: dict[str, Any] = {
        "kind": "growth",
        "what": "stream rows a second as the master grows, one thread",
        "machine": describe(),
        "grid": asdict(grid),
        "points": [],
    }
    for rows in grid.rows:
        say(f"R = {rows:,}: the master")
        workload = Workload("1:1", rows)
        path = workload.prepare(folder, grid.page_bytes)
        feed = Feed.of(workload.stream(grid.exponent), grid.feed_rows)
        for read in grid.reads:
            for budget, memory in grid.budgets(workload).items():
                say(f"R = {rows:,}, {read}, {budget}")
                point = _measure(grid, open_master(path, read), feed, memory)
                record["points"].append({"rows": rows, "budget": budget, **point})
                yield record


def _measure(grid: GrowthGrid, master: FileMaster, feed: Feed, memory: int) -> dict[str, Any]:
    runs = {
        name: Run(
            Join(master, feed.schema, on="key", memory=memory, algorithm=name), feed.forever()
        )
        for name in grid.algorithms
    }
    for run in runs.values():
        run.warm_up(10 * grid.seconds)
    takers = {name: partial(run.sample, grid.seconds) for name, run in runs.items()}
    _, samples = take_rounds(grid.rounds, None, takers)
    return {
        "read": master.read,
        "memory": memory,
        "resident": resident_bytes(master.path / master.manifest.name("pages")),
        "pages_bytes": master.manifest.pages_bytes,
        "rates": {name: {"samples": samples[name], **run.facts()} for name, run in runs.items()},
    }
