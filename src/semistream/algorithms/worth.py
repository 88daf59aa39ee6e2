"""What a cache is worth: when it pays, which keys would be hot again, when to look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from semistream.engine.ranking import MOST_COUNTED

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["PAGE_COST", "BackOff", "Progress", "cache_pays", "far_ahead"]

PAGE_COST = 300
"""Rows that are answered in the time that a page takes: 40 to 60 µs against 0.15."""
_SPARED = 0.6  # of the work of a row that waits is spared one that the cache answers
_IN_VAIN = 0.25  # of it costs a row that the cache does not answer: to look, to count, to exchange
_CLEARLY = 8  # times as often as others are asked for, and a value is hot where none was before
_LONGEST_SKIP = 16  # batches of output in which no row is looked for that might enter the cache


def cache_pays(hits: float, share: float) -> bool:
    """Return whether a cache that answers this part of the rows is worth its work.

    ``share`` is what a row that waits costs in page reads, in times of the work on the row itself.

    Examples
    --------
    >>> cache_pays(0.2, share=0.2), cache_pays(0.2, share=5.0)
    (False, True)
    """
    return bool(hits * (_SPARED + share) >= (1 - hits) * _IN_VAIN)


def far_ahead(hits: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], evenly: float) -> float:
    """Return how often a value must have been asked for, for each of its rows, to be hot again.

    Far more often than the values at hand, or than all values if these were asked for alike: few
    keys that are all as hot as each other are hot as well.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(100, dtype=np.int64)
    >>> far_ahead(5.0 * one, one, evenly=6.0), far_ahead(90.0 * one, one, evenly=6.0)
    (40.0, 48.0)
    """
    usual = min(float(hits.mean()), evenly)
    return float(min(_CLEARLY * max(1.0 / rows.mean(), usual), MOST_COUNTED))


class Progress(NamedTuple):
    """Stream rows, pages read, rows that the cache answered, rows that it did not."""

    rows: int = 0
    pages: int = 0
    hits: int = 0
    missed: int = 0

    @property
    def share(self) -> float:
        """What a row that waits costs in page reads, in times of the work on the row itself."""
        return PAGE_COST * max(1, self.pages) / max(1, self.missed)


class BackOff:
    """Exponential back-off: skip twice as many batches after each fruitless search, at most 16.

    Examples
    --------
    >>> back_off, searches = BackOff(), []
    >>> for number in range(10):
    ...     if not back_off.skip():
    ...         searches.append(number)
    ...         back_off.note(success=False)
    >>> searches
    [0, 2, 5]
    """

    def __init__(self) -> None:
        self._left = self._length = 0

    def skip(self) -> bool:
        """Return whether to skip this batch."""
        self._left -= 1
        return self._left >= 0

    def note(self, success: bool) -> None:
        """Note whether a search was of use."""
        self._length = 0 if success else min(max(1, 2 * self._length), _LONGEST_SKIP)
        self._left = self._length
