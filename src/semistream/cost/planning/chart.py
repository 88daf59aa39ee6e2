"""A small chart for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.planning.rates import format_rate
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["chart"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT, _WIDTH = 5, 4


def chart(points: Sequence[tuple[int, float]], marked: int) -> str:
    """Draw rates over memory as bars; the one of the ``marked`` memory is pointed at.

    Examples
    --------
    >>> print(chart([(1 << 20, 1e5), (2 << 20, 1.5e5), (4 << 20, 2e5)], 2 << 20))
    200k ┤         ███
         │     ▆▆▆ ███
         │ ▄▄▄ ███ ███
         │ ███ ███ ███
       0 ┼ ███ ███ ███
                ▲
           1 MB to 4 MB, ▲ 2 MB
    """
    top = max(rate for _, rate in points)
    label = format_rate(top)
    margin = max(4, len(label))
    levels = [round(rate / top * _HEIGHT * 8) for _, rate in points]
    lines = []
    for line in range(_HEIGHT - 1, -1, -1):
        name, edge = {_HEIGHT - 1: (label, "┤"), 0: ("0", "┼")}.get(line, ("", "│"))
        cells = (_BLOCKS[min(8, max(0, level - 8 * line))] * (_WIDTH - 1) for level in levels)
        lines.append(f"{name:>{margin}} {edge} {' '.join(cells)}".rstrip())
    nearest = min(range(len(points)), key=lambda i: abs(points[i][0] - marked))
    pointer = " " * (margin + 4 + nearest * _WIDTH) + "▲"
    ends = f"{format_bytes(points[0][0])} to {format_bytes(points[-1][0])}"
    below = f"{' ' * (margin + 3)}{ends}, ▲ {format_bytes(marked)}"
    return "\n".join([*lines, pointer, below])
