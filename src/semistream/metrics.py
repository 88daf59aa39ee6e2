"""Counters of a join."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Metrics"]


@dataclass
class Metrics:
    """What a join has done so far."""

    rows_in: int = 0
    """Stream rows taken in."""
    rows_out: int = 0
    """Rows given out."""
    answered: int = 0
    """Stream rows that are done, in whatever way."""
    unmatchable: int = 0
    """Stream rows whose key is null, or a number that the master's type cannot hold."""
    null_keys: int = 0
    """Those of them whose key is null."""
    filtered: int = 0
    """Stream rows known to have no match without a page: by filter or index, by a null key, or
    because the whole master is in memory."""
    cache_hits: int = 0
    """Stream rows answered from the cache (the papers' w_N)."""
    looked_up: int = 0
    """Stream rows answered at once, from mapped pages that lay in memory."""
    pinned_hits: int = 0
    """Stream rows answered by a page that stays in memory."""
    absent: int = 0
    """Stream rows that met their page and found no match there."""
    iterations: int = 0
    """Rounds of the algorithm's main loop."""
    reads: int = 0
    """Reads of the master's file."""
    pages_read: int = 0
    bytes_read: int = 0
    queries: int = 0
    """Queries to a database by lists of keys, those that were tried again included."""
    fetched: int = 0
    """Master rows that a database sent."""
    evicted: int = 0
    """Master rows that left the cache."""

    @classmethod
    def total(cls, several: Iterable[Metrics]) -> Metrics:
        """Return the sums of several joins' counters.

        Examples
        --------
        >>> Metrics.total([Metrics(rows_in=2), Metrics(rows_in=3, reads=1)]).rows_in
        5
        """
        counters = [vars(metrics) for metrics in several]
        return cls(**{name: sum(each[name] for each in counters) for name in vars(cls())})

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return asdict(self)
