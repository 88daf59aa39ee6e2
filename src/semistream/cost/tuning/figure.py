"""The figure of a tuning, as a small SVG file; needs matplotlib, of the extra ``figures``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.cost.tuning.show import curve_of
from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["MARKS", "draw_into", "draw_tuning"]

MARKS = "osD^v"


def draw_into(path: Path, draw: Callable[[Any], None]) -> None:
    """Draw a figure into an SVG file."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        msg = "figures need matplotlib: pip install 'semistream[figures]'"
        raise OptionError(msg) from None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    draw(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def draw_tuning(record: dict[str, Any], figure: Any) -> None:  # noqa: ANN401 - matplotlib has no types
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
    panel.errorbar(x, y, errors, fmt=MARKS[number % len(MARKS)], color=color, label=label)
    panel.set_xlabel(f"{knob}, KB" if scale > 1 else knob)
