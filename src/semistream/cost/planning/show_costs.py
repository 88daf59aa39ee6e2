"""Unit costs as tables of text, by the papers' symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.sheet import Sheet
from semistream.units import format_bytes

if TYPE_CHECKING:
    from semistream.cost.unit_costs import UnitCosts

__all__ = ["cost_sheets"]

_SAME = 1.02  # sizes that are closer to each other are one

_ROWS = {
    "c_S": "take a stream row in: its code, its page",
    "c_A": "append a row to the window",
    "c_E": "move a row of the window",
    "c_H": "look a row up in the cache",
    "c_O": "match a row, and give it out",
}


def cost_sheets(costs: UnitCosts) -> list[Sheet]:
    """Give the cost of reads, of rows, and what was fitted for each algorithm.

    Examples
    --------
    >>> from semistream.cost.example import example_profile
    >>> reads, rows, fits = cost_sheets(example_profile().costs)
    >>> reads.heads[:3], reads.rows[0][:3]
    (('c_I/O', 'direct', 'direct, 1 ahead'), ('8 KB', '90', '60'))
    >>> rows.rows[-1]
    ('c_O  match a row, and give it out', '80', '20', '1')
    """
    return [_reads(costs), _rows(costs), _fits(costs)]


def _reads(costs: UnitCosts) -> Sheet:
    sizes: list[float] = []
    for size in sorted(size for curve in costs.c_io.values() for size in curve.at):
        if not sizes or size > _SAME * sizes[-1]:
            sizes.append(size)
    rows = tuple(
        (format_bytes(size), *(f"{1e6 * curve(size):,.0f}" for curve in costs.c_io.values()))
        for size in sizes
    )
    note = "microseconds a read of so many bytes, checksums included; ahead: with so many in flight"
    return Sheet("reads", ("c_I/O", *costs.c_io), rows, note)


def _rows(costs: UnitCosts) -> Sheet:
    rows = []
    for symbol, what in _ROWS.items():
        cost = getattr(costs, symbol)
        parts = (f"{1e9 * part:.3g}" for part in (cost.fixed, cost.column, cost.byte))
        rows.append((f"{symbol}  {what}", *parts))
    slow = ", ".join(
        f"{value:.2f} at {format_bytes(size)}"
        for size, value in zip(costs.far.at, costs.far.value, strict=True)
    )
    note = f"nanoseconds a row; how much dearer in a window or cache of some size: {slow}"
    return Sheet("rows", ("cost", "fixed", "a column", "a byte"), tuple(rows), note)


def _factor(value: float) -> str:
    return f"{value:.2f}"


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.3g}"


def _fits(costs: UnitCosts) -> Sheet:
    rows = tuple(
        (
            name,
            *map(_micro, (fit.step, fit.wake, fit.judge)),
            *map(_factor, (fit.rows, fit.hits, fit.fill, fit.cached, fit.beside)),
        )
        for name, fit in costs.fits.items()
    )
    times = ("µs a page met", "µs to wake", "µs a page judged")
    heads = ("algorithm", *times, "rows", "hits", "fill", "cached", "beside")
    note = "factors of 1: exactly as the model has it; beside: 0 for nodes that never wait"
    return Sheet("beside the model", heads, rows, note)
