"""Figures as small SVG files, and the parts that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MARKS = "osD^vP*X"


def draw_into(path: Path, draw: Callable[[Any], None], text: str = "path") -> None:
    """Draw a figure into an SVG file; the same figure gives the same bytes.

    Text is drawn as paths, which look the same everywhere, or kept as text (``"none"``), which
    makes a page of many figures far smaller.
    """
    import matplotlib as mpl  # not above: what only measures does without its memory
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": text}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        draw(figure)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def has(part: str) -> Callable[[dict[str, Any]], object]:
    """Check whether a record has a part, for a figure that needs no more."""
    return lambda record: record.get(part)


def ticks(panel: Any, values: Iterable[float], form: str = "g") -> None:
    """Mark these values, and no others, on the x axis."""
    marked = list(dict.fromkeys(values))
    panel.set_xticks(marked, [f"{value:{form}}" for value in marked], minor=False)
    panel.minorticks_off()


def legend_beside(figure: Any, panel: Any) -> None:
    """Put the legend of a panel to the right of all panels."""
    lines = panel.get_legend_handles_labels()
    figure.legend(*lines, loc="outside right center", fontsize="small")
