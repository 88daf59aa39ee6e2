"""The picture of a plan: rate against memory; needs matplotlib, of the extra ``figures``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.cost.planning.result import Planning

__all__ = ["draw_plan"]

_MARKS = "osD^v<>pP*XhH8d"


def draw_plan(planning: Planning, path: Path) -> None:
    """Draw every algorithm's predicted rate over memory into an SVG file."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        msg = f"figure={str(path)!r} needs matplotlib: pip install 'semistream[figures]'"
        raise OptionError(msg) from None
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    _draw(planning, figure.subplots())
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw(planning: Planning, panel: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    winner = planning.winner.algorithm if planning.winner else None
    for number, (name, points) in enumerate(planning.curves.items()):
        if not points:
            continue
        x, y = [size / 2**20 for size, _ in points], [rate / 1e6 for _, rate in points]
        width = 2.5 if name == winner else 1.0
        mark = _MARKS[number % len(_MARKS)]
        panel.plot(x, y, marker=mark, markersize=3, linewidth=width, label=name)
    asked = planning.asked
    if asked.memory is not None:
        panel.axvline(asked.memory / 2**20, color="grey", linestyle=":")
    if asked.rate is not None and planning.cluster is None:
        panel.axhline(asked.rate / 1e6, color="grey", linestyle=":")
    panel.set(xscale="log", xlabel="memory, MB", ylabel="predicted million stream rows/s")
    panel.set_ylim(0, None)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
