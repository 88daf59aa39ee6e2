"""Figures of records, as small SVG files; needs matplotlib, of the extra ``figures``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.cost.spread import spread
from semistream.cost.tuning.figure import MARKS, draw_into, draw_tuning
from semistream.errors import OptionError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["draw"]


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw a record of growth, drift, predictions, tuning or sustained rates as SVG."""
    kinds: dict[str, Callable[[dict[str, Any], Any], None]] = {
        "growth": _growth,
        "drift": _drift,
        "model": _model,
        "sustain": _sustain,
        "tuning": draw_tuning,
    }
    if record["kind"] not in kinds:
        raise OptionError.unknown("a figure of", record["kind"], kinds)
    draw_into(path, lambda figure: kinds[record["kind"]](record, figure))


def _growth(record: dict[str, Any], figure: Any) -> None:  # noqa: ANN401 - matplotlib has no types
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
                _growth_line(panel, record, (budget, read, name), mark)
        panel.set(xscale="log", xlabel="rows of R, million", title=title, ylim=(0, None))
        ticks = [rows / 1e6 for rows in grid["rows"]]
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        panel.minorticks_off()
    panels[0].set_ylabel("million stream rows/s")
    panels[1].legend(fontsize="small")


def _growth_line(
    panel: Any,  # noqa: ANN401 - matplotlib has no types
    record: dict[str, Any],
    line: tuple[str, str, str],
    mark: str,
) -> None:
    budget, read, name = line
    chosen = [p for p in record["points"] if (p["budget"], p["read"]) == (budget, read)]
    if not chosen:
        return
    found = [spread(p["rates"][name]["samples"]) for p in chosen]
    x, y = [p["rows"] / 1e6 for p in chosen], [s.middle / 1e6 for s in found]
    errors = [
        [(s.middle - s.least) / 1e6 for s in found],
        [(s.most - s.middle) / 1e6 for s in found],
    ]
    style = "-" if read == "mapped" else "--"
    panel.errorbar(x, y, errors, marker=mark, linestyle=style, label=f"{name}, {read}", capsize=2)


def _drift(record: dict[str, Any], figure: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    """Draw the rate over the stream's rows: one panel a way of reading, a line an algorithm."""
    grid = record["grid"]
    panels = figure.subplots(1, len(grid["reads"]), squeeze=False)[0]
    for panel, read in zip(panels, grid["reads"], strict=True):
        for curve in (c for c in record["curves"] if c["read"] == read):
            x = [(i + 1) * grid["slice_rows"] / 1e6 for i in range(len(curve["rates"]))]
            panel.plot(x, [rate / 1e6 for rate in curve["rates"]], label=curve["algorithm"])
        panel.axvline(grid["before"] / 1e6, color="grey", linestyle=":")
        panel.set(xlabel="stream rows, million", title=f"{read}, {grid['share']:.0%} of R")
        panel.set_ylim(0, None)
    panels[0].set_ylabel("million stream rows/s")
    panels[0].legend(fontsize="small")


def _model(record: dict[str, Any], figure: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    """Draw predicted over measured rates, a panel a size of R; between the lines, 20 % off."""
    sizes = record["grid"]["rows"]
    names = list(dict.fromkeys(name for cell in record["cells"] for name in cell["rates"]))
    panels = figure.subplots(1, len(sizes), sharex=True, sharey=True, squeeze=False)[0]
    for panel, rows in zip(panels, sizes, strict=True):
        for number, name in enumerate(names):
            found = [
                c["rates"][name]
                for c in record["cells"]
                if c["rows"] == rows and name in c["rates"]
            ]
            x, y = ([rate[what] / 1e3 for rate in found] for what in ("steady", "predicted"))
            mark = MARKS[number % len(MARKS)]
            panel.plot(x, y, mark, color=f"C{number % 10}", markersize=3.5, label=name)
        ends = [1, 4000]
        for factor, style in ((1.0, "-"), (1.2, ":"), (1 / 1.2, ":")):
            panel.plot(ends, [factor * end for end in ends], style, color="grey", linewidth=0.8)
        panel.set(xscale="log", yscale="log", title=f"R = {rows / 1e6:g}M rows")
        panel.set_xlabel("measured, thousand rows/s")
    panels[0].set_ylabel("predicted")
    panels[-1].legend(fontsize=4.5, ncols=2, loc="lower right")


def _sustain(record: dict[str, Any], figure: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    """Draw the backlog over time, in seconds of arrivals: one panel a budget."""
    times = record["grid"]["times"]
    for panel, much in zip(figure.subplots(1, len(times), squeeze=False)[0], times, strict=True):
        for run in (r for r in record["runs"] if r["times"] == much and "backlog" in r):
            x, y = zip(*run["backlog"], strict=True)
            panel.plot(x, [rows / run["rate"] for rows in y], label=run["algorithm"])
        word = "more" if much > 1 else "less"
        panel.set(title=f"{abs(much - 1):.0%} {word} than the least memory", xlabel="seconds")
        panel.set_ylim(0, None)
    figure.axes[0].set_ylabel("backlog, seconds of arrivals")
    figure.axes[0].legend(fontsize="small")
