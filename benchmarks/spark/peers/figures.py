"""Figures of enrichment beside the alternatives: rate by memory, by R, and time by batch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness.figure import has, legend_beside, ticks
from benchmarks.harness.record import Record
from benchmarks.harness.samples import quantile, spread
from benchmarks.spark.peers.rates import is_plain, rates, steadily
from benchmarks.spark.peers.summary import draw_summary, is_complete
from benchmarks.spark.queries import warm

_LINES = (
    "enrich",
    "enrich-keys",
    "default",
    "sort-merge",
    "broadcast",
    "jdbc",
    "delta",
    "duckdb",
    "lmdb",
    "rocksdb",
    "sqlite",
)
# The same in all panels, whoever is missing in one.
_COLOURS = {name: "black" if name == "enrich" else f"C{i - 1}" for i, name in enumerate(_LINES)}


def _by_memory(record: Record, figure: Any) -> None:
    """Draw the rate against the budget, at the least R."""
    rows, batch = (min(_values(record, "rows")), max(_values(record, "batch_rows")))
    chosen = [
        c
        for c in record["cells"]
        if (c["rows"], c["how"], c["batch_rows"]) == (rows, "left", batch)
        and (c["exponent"], c["duplicates"]) == (1.0, 1)
    ]
    panel = figure.subplots()
    _lines(panel, record, chosen, lambda cell: 100 * cell["share"], _rate)
    panel.set(xlabel="budget, % of R", ylabel="million stream rows/s", xscale="log", ylim=(0, None))
    panel.set_title(f"R = {rows / 1e6:g}M, left, Zipf 1, batches of {batch:,}")
    ticks(panel, [100 * cell["share"] for cell in chosen])


def _by_rows(record: Record, figure: Any) -> None:
    """Draw the rate against the size of R: one panel a join and batch."""
    sizes = _values(record, "batch_rows")[-2:]
    kinds = [(how, size) for how in reversed(_values(record, "how")) for size in sizes]
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for panel, (how, batch) in zip(panels, kinds, strict=True):
        chosen = [c for c in _plain(record) if (c["how"], c["batch_rows"]) == (how, batch)]
        _lines(panel, record, chosen, lambda cell: cell["rows"] / 1e6, _rate, legend=False)
        panel.set(
            xlabel="rows of R, million", xscale="log", yscale="log", title=f"{how}, {batch:,}"
        )
        ticks(panel, [cell["rows"] / 1e6 for cell in chosen])
    panels[0].set_ylabel("million stream rows/s")
    legend_beside(figure, panels[0])


def _by_batch(record: Record, figure: Any) -> None:
    """Draw the time of a micro-batch against its size: one panel an R."""
    sizes = _values(record, "rows")
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for panel, rows in zip(panels, sizes, strict=True):
        chosen = [c for c in _plain(record) if (c["how"], c["rows"]) == ("left", rows)]
        _lines(panel, record, chosen, lambda cell: cell["batch_rows"], _seconds, legend=False)
        panel.set(xlabel="rows of a micro-batch", xscale="log", yscale="log")
        panel.set_title(f"R = {rows / 1e6:g}M, left")
    panels[0].set_ylabel("seconds of a micro-batch")
    legend_beside(figure, panels[0])


def _growing(record: Record, figure: Any) -> None:
    """Draw throughput, time of small batches, and memory as R grows."""
    grown = sorted((e for e in record["growth"] if "failed" not in e), key=lambda e: e["rows"])
    batches = sorted({entry["batch_rows"] for entry in grown})
    panels = figure.subplots(1, 3)
    small, large = (
        [e for e in grown if e["batch_rows"] == rows] for rows in (batches[0], batches[-1])
    )
    kinds: tuple[tuple[str, list[Record], Callable[[Record], float]], ...] = (
        ("million stream rows/s", large, lambda e: e["batch_rows"] / _middle(record, e) / 1e3),
        (f"ms of a batch of {batches[0]:,}", small, lambda e: _middle(record, e)),
        ("MB beyond a session without join", _held(record), lambda e: _more(e) / 1e6),
    )
    for panel, (label, chosen, value) in zip(panels, kinds, strict=True):
        for constant in (False, True):
            for read in ("mapped", "direct"):
                _growth_line(
                    panel, record, [e for e in chosen if e["read"] == read], constant, value
                )
        panel.set(xlabel="rows of R, million", title=label, xscale="log", ylim=(0, None))
        ticks(panel, [entry["rows"] / 1e6 for entry in chosen])
    panels[0].legend(fontsize="small")


def _held(record: Record) -> list[Record]:
    """Return what was measured of our memory, by R; it is with mapped reads, as by default."""
    entries = [e for e in record.get("memory", []) if e["system"] == "enrich" and "busy" in e]
    return [e | {"read": "mapped"} for e in sorted(entries, key=lambda e: e["rows"])]


def _more(entry: Record) -> int:
    return int(entry["busy"]["all"] - entry["idle"]["all"])


def _growth_line(
    panel: Any,
    record: Record,
    entries: list[Record],
    constant: bool,
    value: Callable[[Record], float],
) -> None:
    fixed, share = record["grid"]["growth_memory"], record["grid"]["share"]
    chosen = [e for e in entries if (e["memory"] == fixed) == constant]
    if chosen:
        budget = f"{fixed >> 20} MiB" if constant else f"{share:.0%} of R"
        mapped = chosen[0]["read"] == "mapped"
        style = f"C{2 * constant + mapped}{'-' if mapped else '--'}"
        x, y = [e["rows"] / 1e6 for e in chosen], [value(e) for e in chosen]
        label = f"{budget}, {chosen[0]['read']}"
        panel.plot(x, y, style, marker="s" if constant else "o", label=label)


def _steadily(record: Record, figure: Any) -> None:
    """Draw the share of micro-batches that took at most so long."""
    panel = figure.subplots()
    for entry in record["steady"]:
        if steady := steadily(entry):
            took, label = sorted(steady.took), record["labels"][entry["system"]]
            share = [100 * (i + 1) / len(took) for i in range(len(took))]
            text = f"{label}: p99 {quantile(took, 0.99):,.0f} ms, {steady.rate / 1e3:.1f}k rows/s"
            panel.plot(took, share, label=text)
    about = record["steady"][0]
    panel.set(xscale="log", xlabel="milliseconds of a micro-batch", ylabel="% of batches")
    panel.set_title(f"{about['rate']:,} rows/s arrive, {about['batch']:,} at a time")
    panel.legend(fontsize="small")


def _values(record: Record, name: str) -> list[Any]:
    """Return the values that cells have, in order."""
    return sorted({cell[name] for cell in record["cells"]})


def _middle(record: Record, entry: Record) -> float:
    return statistics.median(
        t for took in entry["milliseconds"] for t in warm(took, record["dropped"])
    )


def _plain(record: Record) -> list[Record]:
    return [cell for cell in record["cells"] if is_plain(record, cell)]


def _lines(
    panel: Any,
    record: Record,
    cells: list[Record],
    x: Callable[[Record], float],
    y: Callable[[Record, Record, str], float],
    *,
    legend: bool = True,
) -> None:
    """Draw a line a system through the cells where it was measured; ours is the thick one."""
    for name in _LINES:
        chosen = sorted((c for c in cells if c["milliseconds"].get(name)), key=x)
        if chosen:
            width = 2.5 if name == "enrich" else 1.2
            values = [y(record, cell, name) for cell in chosen]
            style = {"lw": width, "ms": 4, "color": _COLOURS[name]}
            panel.plot(list(map(x, chosen)), values, "o-", label=record["labels"][name], **style)
    if legend:
        panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _rate(record: Record, cell: Record, name: str) -> float:
    return spread(rates(cell, name, record["dropped"])).middle / 1e6


def _seconds(record: Record, cell: Record, name: str) -> float:
    return float(cell["batch_rows"]) / spread(rates(cell, name, record["dropped"])).middle


FIGURES: dict[str, tuple[Callable[[Record], object], Callable[[Record, Any], None]]] = {
    "memory": (has("cells"), _by_memory),
    "rows": (has("cells"), _by_rows),
    "batch": (has("cells"), _by_batch),
    "growth": (has("growth"), _growing),
    "steady": (has("steady"), _steadily),
    "summary": (is_complete, draw_summary),
}
"""The figures, each with a check whether a record has what it needs."""
