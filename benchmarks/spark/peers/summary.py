"""The figure of the README: rate, memory, and what the page cache contributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness.figure import ticks
from benchmarks.harness.record import Record
from benchmarks.harness.samples import spread
from benchmarks.spark.peers.rates import is_plain, rates
from benchmarks.spark.queries import warm

# Memory was measured of every system in this cell only, so that the rate is taken from it too.
_ROWS, _BATCH_ROWS, _LARGE_BATCH = 2_000_000, 100_000, 1_000_000
_SYSTEMS = {
    "enrich": "semistream",
    "enrich-keys": "semistream, keys through Python",
    "sqlite": "SQLite in the Python worker",
    "lmdb": "LMDB in the Python worker",
    "duckdb": "DuckDB in the Python worker",
    "jdbc": "PostgreSQL by key lists",
    "delta": "Delta by the batch's keys",
    "sort-merge": "Spark join, bucketed table",
    "default": "Spark join",
    "broadcast": "Spark broadcast join",
}


def draw_summary(record: Record, figure: Any) -> None:
    """Draw each system's rate and memory, and our rate with and without the page cache."""
    figure.set_size_inches(10.5, 3.9)
    rate, memory, cache = figure.subplots(1, 3, width_ratios=(1.1, 1.1, 0.9))
    _dots(rate, _rates(record))
    rate.set_title("thousand stream rows/s", fontsize="medium")
    rate.set(xscale="log", xlim=(15, 1000))
    rate.set_xticks([20, 100, 500], ["20", "100", "500"])
    rate.set_yticks(range(len(_SYSTEMS)), list(_SYSTEMS.values()))
    _dots(memory, _memory(record))
    memory.set_title("MB of process memory added", fontsize="medium")
    memory.set(xscale="log", xlim=(20, 14000))
    memory.set_xticks([30, 300, 3000], ["30", "300", "3,000"])
    memory.set_yticks(range(len(_SYSTEMS)), [])
    for panel in (rate, memory):
        panel.minorticks_off()
    _page_cache(cache, record)


def is_complete(record: Record) -> bool:
    """Check whether a record has all that the figure shows."""
    cells = any(_cell(cell) and is_plain(record, cell) for cell in record.get("cells", []))
    return cells and bool(record.get("memory")) and bool(record.get("growth"))


def _cell(cell: Record) -> bool:
    return (cell["rows"], cell["how"], cell["batch_rows"]) == (_ROWS, "left", _BATCH_ROWS)


def _rates(record: Record) -> list[float]:
    cell = next(c for c in record["cells"] if _cell(c) and is_plain(record, c))
    return [spread(rates(cell, name, record["dropped"])).middle / 1e3 for name in _SYSTEMS]


def _memory(record: Record) -> list[float]:
    """Return the bytes beyond a session that only reads the stream, in MB of 2**20 bytes."""
    budget = _ROWS * 120 * record["grid"]["share"]
    entries = {
        e["system"]: (e["busy"]["all"] - e["idle"]["all"]) / (1 << 20)
        for e in record["memory"]
        if (e["rows"], e["memory"]) == (_ROWS, budget) and "busy" in e
    }
    return [entries[name] for name in _SYSTEMS]


def _dots(panel: Any, values: Sequence[float]) -> None:
    """Draw points, not bars: a logarithmic axis has no zero for a bar to start from."""
    ours = [name.startswith("enrich") for name in _SYSTEMS]
    colours = ["C3" if mine else "0.35" for mine in ours]
    places = range(len(values))
    panel.scatter(values, places, c=colours, s=28, zorder=3)
    for place, value, colour in zip(places, values, colours, strict=True):
        panel.annotate(
            f"{value:,.0f}",
            (value, place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            color=colour,
        )
    panel.invert_yaxis()
    panel.grid(axis="y", color="0.9")
    panel.spines[["top", "right"]].set_visible(False)


def _page_cache(panel: Any, record: Record) -> None:
    """Draw our rate against the size of the master, with the page cache and without."""
    titles = {"mapped": "pages in the OS cache", "direct": "no OS cache"}
    for (read, title), style in zip(titles.items(), ("o-", "s--"), strict=True):
        points = sorted(
            (e["rows"] / 1e6, _rate(record, e))
            for e in record["growth"]
            if (e["read"], e["batch_rows"]) == (read, _LARGE_BATCH)
            and e["memory"] == record["grid"]["growth_memory"]
        )
        panel.plot(*zip(*points, strict=True), f"C3{style}", label=title)
    panel.set_title("semistream, budget 64 MB", fontsize="medium")
    panel.set(xscale="log", yscale="log", ylim=(100, 4000))
    panel.set(xlabel="master, million rows", ylabel="thousand stream rows/s")
    ticks(panel, sorted({e["rows"] / 1e6 for e in record["growth"]}))
    panel.set_yticks([100, 300, 1000, 3000], ["100", "300", "1,000", "3,000"])
    panel.minorticks_off()
    panel.legend(fontsize="small", loc="upper right")
    panel.spines[["top", "right"]].set_visible(False)


def _rate(record: Record, entry: Record) -> float:
    """Return thousand rows a second by the median of all warm batches."""
    took = [t for round_ in entry["milliseconds"] for t in warm(round_, record["dropped"])]
    return float(entry["batch_rows"]) / spread(took).middle
