"""Figures of records, as small SVG files; needs matplotlib, of the extra ``bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.bench.summary import spread
from semistream.bench.tuning_tables import curve_of
from semistream.errors import OptionError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["draw", "draw_into"]

_MARKS = "osD^v"


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw a record of growth, drift, predictions, tuning or sustained rates as SVG."""
    kinds: dict[str, Callable[[dict[str, Any], Any], None]] = {
        "growth": _growth,
        "drift": _drift,
        "model": _model,
        "sustain": _sustain,
        "tuning": _tuning,
    }
    if record["kind"] not in kinds:
        raise OptionError.unknown("a figure of", record["kind"], kinds)
    draw_into(path, lambda figure: kinds[record["kind"]](record, figure))


def draw_into(path: Path, draw: Callable[[Any], None]) -> None:
    """Draw a figure into an SVG file."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        msg = "figures need matplotlib: pip install 'semistream[bench]'"
        raise OptionError(msg) from None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    draw(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


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
            for name, mark in zip(grid["algorithms"], _MARKS, strict=False):
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
            mark = _MARKS[number % len(_MARKS)]
            panel.plot(x, y, mark, color=f"C{number % 10}", markersize=3.5, label=name)
        ends = [1, 4000]
        for factor, style in ((1.0, "-"), (1.2, ":"), (1 / 1.2, ":")):
            panel.plot(ends, [factor * end for end in ends], style, color="grey", linewidth=0.8)
        panel.set(xscale="log", yscale="log", title=f"R = {rows / 1e6:g}M rows")
        panel.set_xlabel("measured, thousand rows/s")
    panels[0].set_ylabel("predicted")
    panels[-1].legend(fontsize=4.5, ncols=2, loc="lower right")


def _tuning(record: dict[str, Any], figure: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    """Draw rates over knobs: lines are the model's, marks are measured; one panel a knob."""
    cells = [cell for cell in record["cells"] if "model" in cell]
    if not cells:
        msg = "there is nothing to draw: no budget of this record has anything to tune"
        raise OptionError(msg)
    skew = max(cell["exponent"] for cell in cells)
    chosen = [cell for cell in cells if cell["exponent"] == skew]
    titles = list(dict.fromkeys((c["algorithm"], knob) for c in chosen for knob in c["knobs"]))
    columns = min(4, len(titles))
    lines = -(-len(titles) // columns)
    figure.set_size_inches(max(4.5, 3 * columns), 2.9 * lines)
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    for panel, (name, knob) in zip(panels, titles, strict=False):
        for number, cell in enumerate(c for c in chosen if c["algorithm"] == name):
            _tuning_line(panel, cell, knob, number)
        panel.set(title=f"{name}: {knob}", ylim=(0, 1.15))
        if knob != "cache":
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter("{x:g}")
    for panel in panels[len(titles) :]:
        panel.set_axis_off()
    law = "" if "sample" in chosen[0] else f", Zipf {skew:g}"
    panels[0].set_ylabel(f"share of the best rate{law}")
    panels[0].legend(fontsize="small")


def _tuning_line(panel: Any, cell: dict[str, Any], knob: str, number: int) -> None:  # noqa: ANN401
    color, best = f"C{number}", cell["model"]["rate"]
    scale = 1024 if knob in {"buffer", "page_bytes"} else 1
    curve = cell["model"]["curves"][knob]
    panel.plot([x / scale for x, _ in curve], [y / best for _, y in curve], color=color)
    found = [(value / scale, share) for value, _, share in curve_of(cell, knob) if share]
    y = [share.middle for _, share in found]
    errors = [
        [share.middle - share.least for _, share in found],
        [share.most - share.middle for _, share in found],
    ]
    label = f"{cell['memory'] / cell['master_bytes']:.0%} of R"
    x = [value for value, _ in found]
    panel.errorbar(x, y, errors, fmt=_MARKS[number % len(_MARKS)], color=color, label=label)
    panel.set_xlabel(f"{knob}, KB" if scale > 1 else knob)


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
