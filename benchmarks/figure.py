"""Figures of records, as small SVG files; needs matplotlib, of the extra ``figures``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.cost.spread import spread
from semistream.cost.tuning.figure import MARKS, draw_into
from semistream.errors import OptionError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["draw"]


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw a record of growth or drift as SVG."""
    kinds: dict[str, Callable[[dict[str, Any], Any], None]] = {
        "growth": _growth,
        "drift": _drift,
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
