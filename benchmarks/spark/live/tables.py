"""Tables of what was measured on live databases."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.summary import thousands
from semistream.cost.sheet import Sheet
from semistream.cost.spread import ratio
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    Record = dict[str, Any]

__all__ = ["live_sheets"]

_NAMES = {
    "enrich": "enrich",
    "plain": "foreachBatch, JDBC by one key list",
    "jdbc": "foreachBatch, JDBC by several, broadcast",
    "rows": "row by row in mapInArrow",
    "bound": "constant columns by mapInArrow (bound)",
}


def live_sheets(record: Record) -> Iterator[Sheet]:
    """Give a table for each store."""
    for store in dict.fromkeys(cell["store"] for cell in record["cells"]):
        yield _sheet(record, [cell for cell in record["cells"] if cell["store"] == store])


def _sheet(record: Record, cells: list[Record]) -> Sheet:
    first, rows = cells[0], []
    for name, label in _NAMES.items():
        for cell in (cell for cell in cells if name in cell["systems"]):
            system = cell["systems"][name]
            rates = _rates(record, cell, name)
            asked = f"{system['queries_a_million']:,}"
            versus = "" if name == "enrich" else _times(_rates(record, cell, "enrich"), rates)
            sizes = (f"{system['batch_rows']:,}", format_bytes(cell["memory"]))
            rows.append((label, *sizes, thousands(rates), asked, versus))
    return Sheet(
        f"{first['version'].partition('(')[0].strip()}: R = {first['rows']:,} × 120 B, "
        f"Zipf {record['grid']['exponent']:g}, {record['machine']['master']}",
        (
            "",
            "rows of a batch",
            "budget of enrich",
            "thousand rows/s",
            "queries a million rows",
            "enrich to it",
        ),
        tuple(rows),
        "median of rounds (range); ratios round by round" + _bounds(record, cells),
    )


def _bounds(record: Record, cells: list[Record]) -> str:
    """Say how far ahead of the better key list is what only goes through Python and back."""
    told = []
    for cell in cells:
        if "bound" in cell["systems"]:
            theirs = [_rates(record, cell, name) for name in ("plain", "jdbc")]
            best = max(theirs, key=statistics.median)
            size = f"{cell['batch_rows']:,} ({format_bytes(cell['memory'])})"
            told.append(f"{_times(_rates(record, cell, 'bound'), best)} in batches of {size}")
    return f"; the bound to the better key list: {', '.join(told)}" if told else ""


def _rates(record: Record, cell: Record, name: str) -> list[float]:
    system = cell["systems"][name]
    dropped = record["grid"]["dropped"]
    middles = [statistics.median(t[dropped:] or t[-1:]) for t in system["milliseconds"]]
    return [1000 * system["batch_rows"] / middle for middle in middles]


def _times(mine: list[float], theirs: list[float]) -> str:
    middle, least, most = ratio(mine, theirs)
    return f"{middle:.1f}× ({least:.1f}–{most:.1f})"
