"""Rates from the times of micro-batches, round by round."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness.record import Record
from benchmarks.harness.samples import Spread, ratio, spread
from benchmarks.spark.queries import warm

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_plain(record: Record, cell: Record) -> bool:
    """Whether a cell has the skew and budget of most, and one row a key."""
    usual = (1.0, record["grid"]["share"], 1)
    return (cell["exponent"], cell["share"], cell["duplicates"]) == usual


def is_bound(system: str) -> bool:
    """Whether a system is none that one would take: it does not join, or has R in memory."""
    return system in {"none", "bound"} or system.endswith("-memory")


def rates(cell: Record, system: str, dropped: int) -> list[float]:
    """Return the rows a second of each round, by the median of its batches.

    Examples
    --------
    >>> rates({"batch_rows": 100, "milliseconds": {"x": [[9, 9, 50, 40, 60]]}}, "x", 2)
    [2000.0]
    """
    rounds = cell["milliseconds"][system]
    return [1000 * cell["batch_rows"] / statistics.median(warm(took, dropped)) for took in rounds]


def best(cell: Record, systems: Iterable[str], dropped: int) -> str | None:
    """Return the one of some systems with the best median, if one has not failed."""
    known = [name for name in systems if cell["milliseconds"].get(name)]
    middle = {name: spread(rates(cell, name, dropped)).middle for name in known}
    return max(middle, key=lambda name: middle[name], default=None)


def to(cell: Record, mine: str, other: str | None, dropped: int) -> Spread | None:
    """Return the ratio of a system to another, round by round; None where one has failed."""
    if other is None or not (cell["milliseconds"].get(mine) and cell["milliseconds"].get(other)):
        return None
    return ratio(rates(cell, mine, dropped), rates(cell, other, dropped))


def core_rates(record: Record) -> dict[int, list[float]]:
    """Return the rows a second of each round, by the number of processors."""
    by_count: dict[int, list[float]] = {}
    for entry in record["cores"]:
        middle = statistics.median(warm(entry["milliseconds"], record["dropped"]))
        by_count.setdefault(entry["cores"], []).append(1000 * entry["batch_rows"] / middle)
    return by_count


class Steadily(NamedTuple):
    """Micro-batches on a stream that arrives at its own time, when all is warm."""

    took: list[int]
    """Milliseconds."""
    taken: list[int]
    """Rows."""
    waited: list[int]
    """Milliseconds between the arrival of the first row and the end."""
    rate: float
    """Rows a second; less than arrive where they pile up."""


def steadily(entry: Record) -> Steadily | None:
    """Return the batches that began when all was warm; None where there are not two.

    Examples
    --------
    >>> entry = {"warm": 1, "starts": [0, 1500, 2000], "milliseconds": [900, 300, 400]}
    >>> warm = steadily(entry | {"taken": [9, 100, 125], "waited": [0, 350, 500]})
    >>> warm.took, warm.rate
    ([300, 400], 250.0)
    """
    starts = entry.get("starts", [])
    warmed = [i for i, start in enumerate(starts) if start >= 1000 * entry["warm"]]
    if len(warmed) < 2:
        return None
    took, taken, waited = (
        [entry[name][i] for i in warmed] for name in ("milliseconds", "taken", "waited")
    )
    seconds = (starts[-1] + took[-1] - starts[warmed[0]]) / 1000
    return Steadily(took, taken, waited, sum(taken) / seconds)
