"""Tables of results, from their records: what is in them, not how they are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.engine.matrix import Cell, cell_of
from benchmarks.spark.live.tables import live_sheets
from benchmarks.spark.peers.tables import peers_sheets
from benchmarks.spark.tables import spark_sheets
from benchmarks.summary import LOST, Versus, candidate, thousands, versus
from semistream.cost.sheet import Sheet
from semistream.cost.spread import ratio, spread
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Record = dict[str, Any]

__all__ = ["sheets"]


def sheets(record: Record) -> Iterator[Sheet]:
    """Give the tables of a record of any kind."""
    kinds: dict[str, Callable[[Record], Iterator[Sheet]]] = {
        "matrix": _matrix,
        "stores": _stores,
        "peers": peers_sheets,
        "confined": _confined,
        "growth": _growth,
        "drift": _drift,
        "spark": spark_sheets,
        "live": live_sheets,
    }
    yield from kinds[record["kind"]](record)


def _matrix(record: Record) -> Iterator[Sheet]:
    cells = {cell_of(cell): cell for cell in record["cells"]}
    reads = list(dict.fromkeys(cell.read for cell in cells))
    for read in reads:
        yield from _rates(record, cells, read)
    for read in reads:
        yield from _extra(record, cells, read)
    for read in reads:
        yield _versus(record, cells, read)


def _rates(record: Record, cells: dict[Cell, Record], read: str) -> Iterator[Sheet]:
    """Give one table for a workload, at Zipf 1: algorithms down, budgets across."""
    for workload in record["grid"]["workloads"]:
        chosen = [c for c in cells if c[:3] == (workload["name"], 1.0, read)]
        if workload["extra"] or not chosen:
            continue
        heads = tuple(f"{cell.share:.0%} of R" for cell in chosen)
        size = f"R = {workload['rows']:,} × {workload['row_bytes']} B"
        title = f"{workload['name']}, {read} reads, Zipf 1, {size}, one thread"
        yield _rate_sheet(title, heads, [cells[cell] for cell in chosen])


def _extra(record: Record, cells: dict[Cell, Record], read: str) -> Iterator[Sheet]:
    """Give the rates of the workloads with other rows."""
    extra = {w["name"] for w in record["grid"]["workloads"] if w["extra"]}
    chosen = [cell for cell in cells if cell.workload in extra and cell.read == read]
    heads = tuple(f"{cell.workload}, {cell.share:.0%}" for cell in chosen)
    title = f"Wide rows (1 KB), string keys, texts of varying length; {read} reads, Zipf 1"
    if chosen:
        yield _rate_sheet(title, heads, [cells[cell] for cell in chosen])


def _rate_sheet(title: str, heads: tuple[str, ...], cells: list[Record]) -> Sheet:
    names = list(dict.fromkeys(name for cell in cells for name in cell["rates"]))
    rows = [(name, *(_rate(cell, name) for cell in cells)) for name in names]
    rows.append(("in memory (bound)", *(thousands(cell["bound"]) for cell in cells)))
    note = "thousand stream rows/s: median (range), and share of the in-memory bound"
    return Sheet(title, ("algorithm", *heads), tuple(rows), f"{note}; {_held(cells)}")


def _held(cells: list[Record]) -> str:
    if cells[0]["read"] == "direct":
        return "reads go past the operating system's cache"
    held = min(cell["resident"] / cell["pages_bytes"] for cell in cells)
    size = format_bytes(max(cell["pages_bytes"] for cell in cells))
    return f"the operating system held {held:.0%} or more of the pages ({size}) beside the budget"


def _rate(cell: Record, name: str) -> str:
    if name not in cell["rates"]:
        return "refused" if name in cell.get("refused", {}) else "–"
    samples = cell["rates"][name]["samples"]
    return f"{thousands(samples)} {ratio(samples, cell['bound']).middle:.1%}"


def _versus(record: Record, cells: dict[Cell, Record], read: str) -> Sheet:
    """Give the ratio of ours to the best other: workload and skew down, budgets across."""
    mine = candidate(record["grid"]["algorithms"])
    shares = sorted({cell.share for cell in cells})
    lines = dict.fromkeys((c.workload, c.exponent) for c in cells if c.read == read)
    rows, lost, count = [], 0, 0
    for workload, exponent in lines:
        found = [cells.get(Cell(workload, exponent, read, share)) for share in shares]
        against = [versus(cell, mine) if cell else None for cell in found]
        rows.append((workload, f"{exponent:g}", *(_against(v) for v in against)))
        count += sum(v is not None for v in against)
        lost += sum(v is not None and v.lost for v in against)
    heads = ("workload", "Zipf", *(f"{share:.0%} of R" for share in shares))
    note = (
        "ratio to the best other, median (range) over rounds, and which that is; ✗ marks cells "
        f"below {LOST}: {lost} of {count}"
    )
    return Sheet(f"{mine} against the best other, {read} reads", heads, tuple(rows), note)


def _against(found: Versus | None) -> str:
    if found is None:
        return "–"
    middle, least, most = found.ratio
    mark = "✗ " if found.lost else ""
    return f"{mark}{middle:.2f} ({least:.2f}–{most:.2f}) {found.rival}"


def _stores(record: Record) -> Iterator[Sheet]:
    for setting in record["settings"]:
        mine = setting["rates"][setting["algorithm"]]["samples"]
        rows = [_peer(name, rate, mine) for name, rate in setting["rates"].items()]
        heads = ("", "thousand rows/s", "ours is ahead", "process grew by", "files held beside")
        size = f"R = {setting['rows']:,} × 120 B, Zipf {setting['exponent']:g}"
        title = f"Beside other stores: {size}, {format_bytes(setting['memory'])}, one thread each"
        notes = [f"{name}: {note}" for name, note in setting["notes"].items()]
        notes += [f"{name} was left out: {why}" for name, why in setting["left_out"].items()]
        yield Sheet(title, heads, tuple(rows), "; ".join(notes))


def _peer(name: str, rate: Record, mine: Sequence[float]) -> tuple[str, ...]:
    middle, least, most = ratio(mine, rate["samples"])
    return (
        name,
        thousands(rate["samples"]),
        f"{middle:.2f}× ({least:.2f}–{most:.2f})",
        format_bytes(rate["grown_bytes"]) if "grown_bytes" in rate else "not known",
        format_bytes(rate["files_held"]),
    )


def _confined(record: Record) -> Iterator[Sheet]:
    """Give the rates in a cgroup: algorithms down, budgets across, and ours to the best other."""
    grid, settings = record["grid"], record["settings"]
    shares = [setting["share"] for setting in settings]
    mine = candidate(grid["algorithms"])
    cells = [{"rates": _samples(setting["rates"])} for setting in settings]
    rows = [
        (name, *(_confined_rate(s["rates"][name]) for s in settings)) for name in grid["algorithms"]
    ]
    rows.append((f"{mine} against", *(_against(versus(cell, mine)) for cell in cells)))
    runs = [run for s in settings for rate in s["rates"].values() for run in rate]
    held = max(
        (run["resident"] / record["pages_bytes"] for run in runs if "sample" in run), default=0
    )
    title = (
        f"In a memory cgroup, mapped, R = {grid['rows']:,} × 120 B, Zipf {grid['exponent']:g}: "
        f"own needs + budget + {format_bytes(grid['slack'])}"
    )
    note = f"thousand stream rows/s; the operating system held at most {held:.0%} of the pages"
    heads = ("algorithm", *(f"{share:.0%} of R" for share in shares))
    yield Sheet(title, heads, tuple(rows), note)


def _samples(rates: Record) -> Record:
    """Give the samples of algorithms of which no process was ended."""
    whole = {name: runs for name, runs in rates.items() if all("sample" in run for run in runs)}
    return {name: {"samples": [run["sample"] for run in runs]} for name, runs in whole.items()}


def _confined_rate(runs: list[Record]) -> str:
    samples = [run["sample"] for run in runs if "sample" in run]
    ended = f" ({len(runs) - len(samples)} ended)" if len(samples) < len(runs) else ""
    return (thousands(samples) if samples else "–") + ended


def _growth(record: Record) -> Iterator[Sheet]:
    """Give the rates as R grows: budget, read and algorithm down, rows of R across."""
    grid, points = record["grid"], record["points"]
    found = {(p["budget"], p["read"], p["rows"]): p for p in points}
    sizes = sorted({p["rows"] for p in points})
    names = {"share": f"{grid['share']:.0%} of R", "constant": format_bytes(grid["memory"])}
    rows = []
    for budget, read in dict.fromkeys((p["budget"], p["read"]) for p in points):
        line = [found.get((budget, read, size)) for size in sizes]
        for name in grid["algorithms"]:
            samples = [point["rates"][name]["samples"] if point else None for point in line]
            rates = [thousands(s) if s else "–" for s in samples]
            cost = "–"
            if samples[0] and samples[-1]:
                cost = f"{spread(samples[0]).middle / spread(samples[-1]).middle:.2f}×"
            rows.append((name, read, names[budget], *rates, cost))
    heads = ("algorithm", "read", "memory", *(f"R = {size / 1e6:g}M" for size in sizes))
    title = f"As R grows: Zipf {grid['exponent']:g}, rows of 120 B, one thread"
    note = "thousand stream rows/s: median (range); the cost is that of the largest R to the least"
    yield Sheet(title, (*heads, "cost"), tuple(rows), note)


def _drift(record: Record) -> Iterator[Sheet]:
    """Give when the rate is back: algorithm and read down."""
    grid = record["grid"]
    drift = grid["before"] // grid["slice_rows"]
    rows = [
        (
            curve["algorithm"],
            curve["read"],
            f"{curve['before'] / 1e3:,.0f}",
            f"{min(curve['rates'][drift:]) / curve['before']:.0%}",
            _back(curve["back_after"]),
            ", ".join(_back(rows) for rows in curve["back_after_each"]),
        )
        for curve in record["curves"]
    ]
    heads = ("algorithm", "read", "thousand rows/s before", "lowest after", "back at 90 % after")
    title = f"The hot keys change: {grid['share']:.0%} of R, Zipf {grid['exponent']:g}"
    note = f"in slices of {grid['slice_rows']:,} rows, by the medians of {grid['repeats']} runs"
    yield Sheet(title, (*heads, "each run"), tuple(rows), note)


def _back(rows: int | None) -> str:
    return "not yet" if rows is None else f"{rows / 1e6:g}M rows"
