"""The matrix: every algorithm at every budget, skew, way of reading and workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.engine.workload import WORKLOADS, Bound, Feed, Workload, workload_named
from benchmarks.harness.claims import LOST, candidate, versus
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.memory import resident_bytes
from benchmarks.harness.record import Record
from benchmarks.harness.rounds import take_rounds
from benchmarks.harness.run import Run, one_thread
from benchmarks.harness.samples import ratio, thousands
from benchmarks.harness.table import Sheet
from semistream.algorithms import algorithms
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.master import FileMaster, open_master
from semistream.units import format_bytes

SLOW = ("inlj", "derakhshan")  # far slower than the others: measured where the papers do
READS = ("mapped", "direct")
_EXTRA_EXPONENTS, _EXTRA_SHARES = (1.0,), (0.05, 0.10)


class Cell(NamedTuple):
    """A setting in which algorithms are compared."""

    workload: str
    exponent: float
    read: str
    share: float

    def __str__(self) -> str:
        return f"{self.workload}, Zipf {self.exponent:g}, {self.read}, {self.share:.0%} of R"


def cell_of(entry: Mapping[str, Any]) -> Cell:
    """Return the cell that an entry of a record is of."""
    return Cell(*(entry[name] for name in Cell._fields))


@dataclass(frozen=True)
class MatrixGrid(Grid):
    """Which algorithms are measured in which cells, and for how long."""

    rows: int = option(2_000_000, "Rows of the master, R.")
    algorithms: tuple[str, ...] = option(
        tuple(algorithms()), "Only this algorithm.", "algorithm", known=algorithms()
    )
    workloads: tuple[Workload, ...] = option(
        WORKLOADS, "Only this workload.", "workload", read=workload_named
    )
    exponents: tuple[float, ...] = option((0.0, 0.5, 1.0, 1.2), "Only this Zipf exponent.", "skew")
    reads: tuple[str, ...] = option(READS, "Only these reads.", "read", known=READS)
    shares: tuple[float, ...] = option(
        (0.01, 0.05, 0.10, 0.20), "Only this budget, as a share of R.", "share"
    )
    seconds: float = option(0.15, "Seconds per sample.")
    rounds: int = option(3, "The number of samples.")
    feed_rows: int = 4_000_000
    """Stream rows made beforehand, and offered again and again."""
    page_bytes: str = option("128KB", "The size of a page.")
    seed: int = 0

    def quick(self) -> MatrixGrid:
        return replace(self, exponents=(1.0,), shares=(0.01, 0.10))

    def complete(self) -> MatrixGrid:
        workloads = tuple(workload.of_rows(self.rows) for workload in self.workloads)
        return replace(self, workloads=workloads, feed_rows=2 * self.rows)

    @property
    def steps(self) -> int:
        return len(self.cells)

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
        """Return the algorithms that are measured in a cell."""
        all_of_them = cell.workload == "1:1" and cell.exponent == 1.0
        return tuple(name for name in self.algorithms if all_of_them or name not in SLOW)


def measure(job: Job[MatrixGrid]) -> Iterator[None]:
    """Measure every algorithm at every budget, skew, way of reading and workload.

    INLJ and Derakhshan, far slower than the others, are only in the 1:1 cells of Zipf 1. In the
    same rounds runs a bound: Arrow's gather from all of R in memory.
    """
    one_thread()
    grid = job.grid
    have = {
        cell_of(entry): {*entry["rates"], *entry.get("refused", {})}
        for entry in job.record.setdefault("cells", [])
    }
    for workload in grid.workloads:
        cells = [cell for cell in grid.cells if cell.workload == workload.name]
        # Algorithms of a cell share rounds: one that has others is measured anew.
        wanted = [cell for cell in cells if have.get(cell) != set(grid.algorithms_of(cell))]
        yield from [None] * (len(cells) - len(wanted))
        if not wanted:
            continue
        job.say(f"the master of {workload.name}")
        path, bound = workload.prepare(job.folder, grid.page_bytes), Bound(workload)
        for exponent in dict.fromkeys(cell.exponent for cell in wanted):
            feed = Feed.of(workload.stream(exponent, grid.seed), grid.feed_rows)
            for cell in (cell for cell in wanted if cell.exponent == exponent):
                job.say(str(cell))
                entry = measure_cell(grid, cell, path, feed, bound)
                job.add("cells", cell._asdict() | entry, *Cell._fields)
                yield


def measure_cell(grid: MatrixGrid, cell: Cell, path: Path, feed: Feed, bound: Bound) -> Record:
    """Measure the algorithms of one cell, and the bound, in turn."""
    workload = next(w for w in grid.workloads if w.name == cell.workload)
    memory = int(cell.share * workload.bytes)
    names, times = grid.algorithms_of(cell), (grid.seconds, grid.rounds)
    return measure_rates(names, open_master(path, cell.read), feed, memory, times, bound)


def measure_rates(
    names: Iterable[str],
    master: FileMaster,
    feed: Feed,
    memory: int,
    times: tuple[float, int],
    bound: Bound | None = None,
) -> Record:
    """Measure algorithms in turn, each warm; those that refuse the budget say why.

    Parameters
    ----------
    times
        Seconds of a sample, and the number of rounds.
    """
    (seconds, rounds), runs, refused = times, dict[str, Run](), dict[str, str]()
    for name in names:
        try:
            join = Join(master, feed.schema, on="key", memory=memory, algorithm=name)
        except BudgetError as error:
            refused[name] = str(error).split(";")[0]
            continue
        runs[name] = Run(join, feed.forever())
    for run in runs.values():
        run.warm_up(10 * seconds)
    bounds, samples = take_rounds(
        rounds,
        partial(bound.sample, feed, seconds / 2) if bound else None,
        {name: partial(run.sample, seconds) for name, run in runs.items()},
    )
    rates = {name: {"samples": samples[name], **run.facts()} for name, run in runs.items()}
    return {
        "memory": memory,
        **({"bound": bounds} if bound else {}),
        "resident": resident_bytes(master.path / master.manifest.name("pages")),
        "pages_bytes": master.manifest.pages_bytes,
        "rates": rates,
        **({"refused": refused} if refused else {}),
    }


def sheets(record: Record) -> Iterator[Sheet]:
    """Return a table a workload, one of the extra workloads, and ours against the best other."""
    cells = {cell_of(entry): entry for entry in record["cells"]}
    reads = list(dict.fromkeys(cell.read for cell in cells))
    for read in reads:
        for workload in record["grid"]["workloads"]:
            chosen = [cell for cell in cells if cell[:3] == (workload["name"], 1.0, read)]
            if chosen and not workload["extra"]:
                size = f"R = {workload['rows']:,} × {workload['row_bytes']} B"
                title = f"{workload['name']}, {read} reads, Zipf 1, {size}, one thread"
                heads = [f"{cell.share:.0%} of R" for cell in chosen]
                yield _rates(title, heads, [cells[cell] for cell in chosen])
    extra = {workload["name"] for workload in record["grid"]["workloads"] if workload["extra"]}
    for read in reads:
        chosen = [cell for cell in cells if cell.workload in extra and cell.read == read]
        if chosen:
            title = f"Wide rows (1 KB), string keys, texts of varying length; {read} reads, Zipf 1"
            heads = [f"{cell.workload}, {cell.share:.0%}" for cell in chosen]
            yield _rates(title, heads, [cells[cell] for cell in chosen])
    for read in reads:
        yield _against(candidate(record["grid"]["algorithms"]), cells, read)


def _rates(title: str, heads: Iterable[str], entries: list[Record]) -> Sheet:
    """Return rates: algorithms down, cells across."""

    def rate(entry: Record, name: str) -> str:
        if name not in entry["rates"]:
            return "refused" if name in entry.get("refused", {}) else "–"
        samples = entry["rates"][name]["samples"]
        return f"{thousands(samples)} {ratio(samples, entry['bound']).middle:.1%}"

    names = dict.fromkeys(name for entry in entries for name in entry["rates"])
    rows = [(name, *(rate(entry, name) for entry in entries)) for name in names]
    rows.append(("in memory (bound)", *(thousands(entry["bound"]) for entry in entries)))
    note = "thousand stream rows/s: median (range), and share of the in-memory bound"
    if entries[0]["read"] == "direct":
        note += "; reads go past the operating system's cache"
    else:
        held = min(entry["resident"] / entry["pages_bytes"] for entry in entries)
        size = format_bytes(max(entry["pages_bytes"] for entry in entries))
        note += f"; the operating system held {held:.0%} or more of the pages ({size})"
        note += " beside the budget"
    return Sheet(title, ("algorithm", *heads), tuple(rows), note)


def _against(mine: str, cells: dict[Cell, Record], read: str) -> Sheet:
    """Return the ratio of ours to the best other: workload and skew down, budgets across."""
    shares = sorted({cell.share for cell in cells})
    rows, compared = [], []
    for workload, exponent in dict.fromkeys(c[:2] for c in cells if c.read == read):
        line = [cells.get(Cell(workload, exponent, read, share)) for share in shares]
        against = [versus(entry["rates"], mine) if entry else None for entry in line]
        rows.append((workload, f"{exponent:g}", *(str(each or "–") for each in against)))
        compared += [each for each in against if each]
    heads = ("workload", "Zipf", *(f"{share:.0%} of R" for share in shares))
    note = (
        "ratio to the best other, median (range) over rounds, and which that is; ✗ marks cells "
        f"below {LOST}: {sum(each.lost for each in compared)} of {len(compared)}"
    )
    return Sheet(f"{mine} against the best other, {read} reads", heads, tuple(rows), note)


MATRIX = Benchmark(
    "matrix", "service rate in stream rows a second, one thread", MatrixGrid, measure, sheets
)
