"""How many pages are read where the oldest row chooses the page: a formula over shares.

A page that a share p of the stream's rows ask for gathers p rows while one stream row arrives. Time
is counted in stream rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Groups", "Queue", "grouped", "oldest_first"]

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
    """Return pages in classes, so that a formula over many pages is quick.

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
    """Return what is read when the oldest row chooses the page, and ``rows`` wait (h_S).

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

    age = _solve(waiting, rows, 2 * rows / groups.total)
    return Queue(float((groups.pages * groups.share / (1 + groups.share * age)).sum()), age)


def _solve(rising: Callable[[float], float], wanted: float, start: float = 1.0) -> float:
    """Return where a rising function has a value, by bisection.

    Examples
    --------
    >>> round(_solve(lambda x: x * x, 2.0), 6)
    1.414214
    """
    low, high = 0.0, max(1.0, start)
    while rising(high) < wanted and high < 1e18:
        low, high = high, 2 * high
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return low
