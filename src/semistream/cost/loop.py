"""A loop: what one iteration of an algorithm does, counted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Loop"]


@dataclass(frozen=True)
class Loop:
    """What one iteration of an algorithm's main loop does.

    Its cost, with a unit cost for each count, is the papers' c_loop; w over c_loop is the service
    rate μ (MESHJOIN's equations 2 and 4, X-HYBRIDJOIN's and PCSRJ's 2 and 3, MOIJ's 2 and 3).

    Examples
    --------
    >>> Loop(w_S=30, w_N=70, read_bytes=131072).pages_a_row
    0.01
    """

    w_S: float  # noqa: N815 - the papers' symbols, here and below
    """Stream rows that pages answer: they go through the window."""
    w_N: float = 0.0  # noqa: N815
    """Stream rows that are answered before the window, from the cache."""
    w_F: float = 0.0  # noqa: N815
    """Stream rows that are known to have no match before the window."""
    pages: float = 1.0
    """Pages that are brought."""
    reads: float = 1.0
    """Reads that bring them."""
    read_bytes: float = 0.0
    """Bytes of one read."""
    met: float = 0.0
    """Pages that are met though they were not brought, for they stay in memory."""
    pinned: float = 0.0
    """Of w_S, rows that such pages answer."""
    silent: float = 0.0
    """Of w_S, rows that wait in vain: they have no match, and nothing comes out for them."""
    output: float = 1.0
    """Rows that come out for a row that matches: the master rows of its join value."""
    moves: float = 3.0
    """Rows of the window that are moved for each that leaves: three quarters stay."""
    window_bytes: float = 0.0
    cache_bytes: float = 0.0
    ahead: int = 0
    """Reads that are in flight while a page is matched."""
    nodes: int = 1
    """Loops that run side by side, each with these counts."""
    keys: float = 0.0
    """Join values in the cache."""
    judged: float = 0.0
    """Of the pages that are brought, those of which a value enters the cache."""

    @property
    def w(self) -> float:
        """Stream rows that the iteration answers."""
        return self.w_S + self.w_N + self.w_F

    @property
    def pages_a_row(self) -> float:
        """Pages that are brought for a stream row."""
        return self.pages / self.w if self.w else 0.0

    @property
    def hit_rate(self) -> float:
        """The share of stream rows that are answered from the cache."""
        return self.w_N / self.w if self.w else 0.0
