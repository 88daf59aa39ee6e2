"""What a larger master costs: at the same share of memory, and at a constant budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.engine.matrix import READS, Cell, cell_of, measure_rates
from benchmarks.engine.workload import Feed, Workload
from benchmarks.harness.claims import candidate
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.figure import MARKS, has, ticks
from benchmarks.harness.record import Record, read_record
from benchmarks.harness.run import one_thread
from benchmarks.harness.samples import spread, thousands
from benchmarks.harness.table import Sheet
from semistream.algorithms import algorithms
from semistream.errors import OptionError
from semistream.master import open_master
from semistream.units import format_bytes, parse_bytes

_MATRIX = Path("results/bench.json")


@dataclass(frozen=True)
class GrowthGrid(Grid):
    """Sizes of the master, two budgets for each, and who is measured."""

    algorithms: tuple[str, ...] = option(
        (), "Instead of ours and the two best published ones.", "algorithm", known=algorithms()
    )
    rows: tuple[int, ...] = option(
        (2_000_000, 5_000_000, 10_000_000, 20_000_000), "Rows of a master."
    )
    share: float = 0.05
    memory: int = option(32 << 20, "The constant budget.", read=parse_bytes)
    reads: tuple[str, ...] = option(READS, "Only these reads.", "read", known=READS)
    exponent: float = 1.0
    seconds: float = option(0.5, "Seconds per sample.")
    rounds: int = option(3, "The number of samples.")
    feed_rows: int = 4_000_000
    page_bytes: str = "128KB"

    def complete(self) -> GrowthGrid:
        names = self.algorithms or tuple(best_published(_matrix(), algorithms()))
        return replace(self, algorithms=names, feed_rows=min(self.feed_rows, 4 * max(self.rows)))

    @property
    def steps(self) -> int:
        return len(self.rows) * len(self.reads) * 2


def _matrix() -> Record | None:
    try:
        return read_record(_MATRIX)
    except OptionError:
        return None


def best_published(matrix: Record | None, known: Iterable[str]) -> list[str]:
    """Return our algorithm and the two best others, by a record of the matrix if there is one.

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


def measure(job: Job[GrowthGrid]) -> Iterator[None]:
    """Measure masters of growing size, at 5 % of R and at a constant budget.

    Compares ours with the two best published algorithms, by ``results/bench.json``. Masters of up
    to 20M rows take 5 GB.
    """
    one_thread()
    grid = job.grid
    for rows in grid.rows:
        job.say(f"R = {rows:,}: the master")
        workload = Workload("1:1", rows)
        path = workload.prepare(job.folder, grid.page_bytes)
        feed = Feed.of(workload.stream(grid.exponent), grid.feed_rows)
        budgets = {"share": int(grid.share * workload.bytes), "constant": grid.memory}
        for read in grid.reads:
            for budget, memory in budgets.items():
                point = {"rows": rows, "budget": budget, "read": read}
                if not job.has("points", point, grid.algorithms):
                    job.say(f"R = {rows:,}, {read}, {budget}")
                    master, times = open_master(path, read), (grid.seconds, grid.rounds)
                    rates = measure_rates(grid.algorithms, master, feed, memory, times)
                    job.add("points", point | rates, *point)
                yield


def sheets(record: Record) -> Iterator[Sheet]:
    """Return the rates as R grows: budget, read and algorithm down, rows of R across."""
    grid, points = record["grid"], record["points"]
    by_setting = {(p["budget"], p["read"], p["rows"]): p["rates"] for p in points}
    sizes = sorted({p["rows"] for p in points})
    names = {"share": f"{grid['share']:.0%} of R", "constant": format_bytes(grid["memory"])}
    rows = []
    for budget, read in dict.fromkeys((p["budget"], p["read"]) for p in points):
        line = [by_setting.get((budget, read, size), {}) for size in sizes]
        for name in grid["algorithms"]:
            samples = [rates[name]["samples"] if name in rates else None for rates in line]
            cost = "–"
            if samples[0] and samples[-1]:
                cost = f"{spread(samples[0]).middle / spread(samples[-1]).middle:.2f}×"
            shown = (thousands(each) if each else "–" for each in samples)
            rows.append((name, read, names[budget], *shown, cost))
    heads = ("algorithm", "read", "memory", *(f"R = {size / 1e6:g}M" for size in sizes))
    title = f"As R grows: Zipf {grid['exponent']:g}, rows of 120 B, one thread"
    note = "thousand stream rows/s: median (range); the cost is that of the largest R to the least"
    yield Sheet(title, (*heads, "cost"), tuple(rows), note)


def draw(record: Record, figure: Any) -> None:
    """Draw rows of R against the rate: one panel a budget, a line for algorithm and read."""
    grid = record["grid"]
    titles = {
        "share": f"{grid['share']:.0%} of R",
        "constant": f"{format_bytes(grid['memory'])} whatever R",
    }
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (budget, title) in zip(panels, titles.items(), strict=True):
        for read in grid["reads"]:
            for name, mark in zip(grid["algorithms"], MARKS, strict=False):
                points = [
                    (p["rows"] / 1e6, spread(rate / 1e6 for rate in p["rates"][name]["samples"]))
                    for p in record["points"]
                    if (p["budget"], p["read"]) == (budget, read) and name in p["rates"]
                ]
                errors = [
                    [rate.middle - rate.least for _, rate in points],
                    [rate.most - rate.middle for _, rate in points],
                ]
                panel.errorbar(
                    [rows for rows, _ in points],
                    [rate.middle for _, rate in points],
                    errors,
                    marker=mark,
                    linestyle="-" if read == "mapped" else "--",
                    label=f"{name}, {read}",
                    capsize=2,
                )
        panel.set(xscale="log", xlabel="rows of R, million", title=title, ylim=(0, None))
        ticks(panel, [rows / 1e6 for rows in grid["rows"]])
    panels[0].set_ylabel("million stream rows/s")
    panels[1].legend(fontsize="small")


GROWTH = Benchmark(
    "growth",
    "stream rows a second as the master grows, one thread",
    GrowthGrid,
    measure,
    sheets,
    {"growth": (has("points"), draw)},
)
