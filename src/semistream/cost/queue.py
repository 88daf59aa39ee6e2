"""How many rows a page answers when it comes: pure formulas over shares of the stream.

A page that a share p of the stream's rows ask for gathers p rows while one stream row arrives. What
an algorithm reads follows from when it brings a page: for its oldest row, when it is the fullest,
or with a batch. Time is counted in stream rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Groups", "Queue", "fullest_first", "grouped", "in_batches", "oldest_first", "solve"]

_CLASSES = 1024  # pages of about the same share are one class: a formula then takes milliseconds
_ROUNDS = 40  # of a bisection


class Groups(NamedTuple):
    """Pages of about the same share: how many, and the share of one."""

    pages: Floats
    share: Floats

    @property
    def total(self) -> float:
        """The share of stream rows that ask for any of them."""
        return float((self.pages * self.share).sum())


class Queue(NamedTuple):
    """What a full window is like."""

    reads: float
    """Pages that are read for a stream row."""
    wait: float
    """Stream rows that arrive while the row that waits longest does (the length of Q)."""


def grouped(shares: Floats) -> Groups:
    """Give pages in classes, so that a formula over many pages is quick.

    Examples
    --------
    >>> groups = grouped(np.full(5000, 1 / 5000))
    >>> len(groups.share), round(groups.total, 6)
    (1024, 1.0)
    """
    shares = np.sort(shares[shares > 0])[::-1]
    if not len(shares):
        return Groups(np.zeros(0), np.zeros(0))
    starts = np.unique(np.linspace(0, len(shares), _CLASSES + 1, dtype=np.int64)[:-1])
    sizes = np.diff(starts, append=len(shares)).astype(np.float64)
    return Groups(sizes, np.add.reduceat(shares, starts) / sizes)


def oldest_first(groups: Groups, rows: float, absent: float = 0.0) -> Queue:
    """Give what is read when the oldest row chooses the page, and ``rows`` wait (h_S).

    A page with share p is asked for after 1/p rows, then waits until that row is the oldest, T rows
    later: so it is read once in 1/p + T rows, and meanwhile a mean of pT(1 + pT/2) / (1 + pT) rows
    wait for it. T follows from the window being full. The papers take the mean of p over all pages
    instead (Tuned X-HYBRIDJOIN, equations 4 to 6), as if any page came and not the one that was not
    brought for longest: that is up to half of it. A share ``absent`` of the stream waits as long,
    and then leaves without a read.

    Examples
    --------
    >>> queue = oldest_first(grouped(np.full(1000, 1 / 1000)), rows=50_000)
    >>> round(1 / queue.reads), round(queue.wait)
    (100, 99010)
    """
    if groups.total <= 0:
        return Queue(0.0, 0.0)

    def waiting(age: float) -> float:
        x = groups.share * age
        return float((groups.pages * x * (1 + x / 2) / (1 + x)).sum()) + absent * age

    age = solve(waiting, rows, 2 * rows / groups.total)
    return Queue(float((groups.pages * groups.share / (1 + groups.share * age)).sum()), age)


def fullest_first(groups: Groups, rows: float, freed: float, most: float = np.inf) -> Queue:
    """Give what is read when sweeps bring the pages that most rows wait for.

    Before a sweep ``rows`` wait; it brings the fullest pages until ``freed`` rows are gone. In the
    stream rows between two sweeps a page gets a = p·Δ rows, and it is brought by the first sweep
    that finds at least θ: after K sweeps, K = 1 + Σⱼ P(Poisson(j·a) < θ), but no later than the
    ``most``-th. Before a sweep a mean of a(K + 1)/2 rows wait for it; θ follows from all of them
    being ``rows``.

    Examples
    --------
    >>> queue = fullest_first(grouped(np.full(1000, 1 / 1000)), rows=100_000, freed=25_000)
    >>> 150 < 1 / queue.reads < 200
    True
    """
    if groups.total <= 0:
        return Queue(0.0, 0.0)
    between = freed / groups.total  # Δ
    each = groups.share * between

    def cycle(least: float) -> Floats:
        return np.minimum(_sweeps(each, least), most)

    def waiting(least: float) -> float:
        return float((groups.pages * each * (cycle(least) + 1) / 2).sum())

    least = solve(waiting, rows, rows)
    cycles = cycle(least)
    longest = float(cycles.max()) * between
    reads = float((groups.pages / cycles).sum()) / between
    return Queue(min(reads, groups.total), longest)  # a page that comes answers a row at least


def in_batches(groups: Groups, rows: float) -> Queue:
    """Give what is read when every page that a batch of so many stream rows wants is read once.

    Examples
    --------
    >>> round(1 / in_batches(grouped(np.full(1000, 1 / 1000)), rows=50_000).reads)
    50
    """
    wanted = float((groups.pages * -np.expm1(-groups.share * rows)).sum())
    return Queue(wanted / rows, rows)


def _sweeps(each: Floats, least: float) -> Floats:
    """Give the sweeps until a page that gets ``each`` rows a sweep has at least so many.

    A renewal count: to pass θ takes θ/a steps, and half a step more for what the last one has
    beyond θ; a page that gets far more than θ is brought by every sweep.
    """
    mean = least / np.maximum(each, 1e-12)
    return np.maximum(1.0, mean + 0.5)


def solve(
    rising: Callable[[float], float], wanted: float, start: float = 1.0, rounds: int = _ROUNDS
) -> float:
    """Give where a rising function has a value, by bisection.

    Examples
    --------
    >>> round(solve(lambda x: x * x, 2.0), 6)
    1.414214
    """
    low, high = 0.0, max(1.0, start)
    while rising(high) < wanted and high < 1e18:
        low, high = high, 2 * high
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return low
