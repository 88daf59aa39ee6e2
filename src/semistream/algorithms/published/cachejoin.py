"""CACHEJOIN: a cache of frequent master rows in front of HYBRIDJOIN."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.arrow.memory import take_rows
from semistream.engine.algorithm import share
from semistream.engine.cache import Cache
from semistream.engine.plan import Settings
from semistream.engine.ranking import keep_best

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.engine.pages import Page
    from semistream.engine.plan import Plan, Task

__all__ = ["Cachejoin", "CachejoinSettings"]


@dataclass(frozen=True)
class CachejoinSettings(Settings):
    """The cache's share of the memory that cache and window divide."""

    cache_share: float = 0.0


class Cachejoin(Hybridjoin):
    """Answer frequent keys from a cache (H_R); the others as HYBRIDJOIN does.

    A row of the master that a page brings is cached if at least *threshold* rows of the window
    matched it; when the cache is full, the least frequent rows make room.

    Parameters
    ----------
    cache
        The cache's share of the memory that cache and window divide, between 0 and 1.

    Notes
    -----
    From the papers (CACHEJOIN as PCSRJ describes it, section 3.2): both phases, the threshold, its
    tuning (up when rows are evicted often, down when the cache is not full after a round of R), the
    overwriting of the least frequent. Decided here: rows enter and leave the cache in epochs of at
    most an eighth of it, so that it counts as full from three quarters on; all rows of a join value
    are cached or none (the paper has unique keys); counts are halved at each epoch, so that the
    cache follows a stream that drifts; half of the memory is the cache's, for the papers give no
    share.

    References
    ----------
    Naeem, Dobbie, Weber: A Lightweight Stream-based Join with Limited Resource Consumption,
    DaWaK 2012.
    """

    name = "cachejoin"
    paper = "Naeem, Dobbie, Weber: A Lightweight Stream-based Join, DaWaK 2012"
    options = frozenset({"cache"})
    counts_matches = True

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.5, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: one page, output, the cache (H_R), and the window (H_S and Q)."""
        parts = task.fixed(1)
        size = task.cache_bytes(share("cache", cache) * (task.memory - parts.total))
        settings = CachejoinSettings(cache_share=float(cache))
        return task.split(cls.name, replace(parts, cache=size), settings)

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self._capacity = engine.plan.components.cache
        self.cache: Cache = Cache(engine.master.page_schema, self._capacity)  # H_R
        self.threshold = 2
        self._round_ends = engine.master.pages

    def note_matches(self, page: Page, counts: npt.NDArray[np.int64]) -> None:
        """Cache the rows that at least *threshold* rows of the window matched (lines 15 to 18)."""
        frequent = counts >= self.threshold
        if frequent.any():
            self._stage(page, np.flatnonzero(frequent), counts)
        if self.engine.metrics.iterations >= self._round_ends:
            self._round_ends += self.engine.master.pages
            if self.cache.claimed < 3 / 4 * self._capacity:
                self.threshold = max(1, self.threshold - 1)

    def _stage(
        self, page: Page, rows: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> None:
        chosen = take_rows(page.batch, rows)
        price = self.cache.price(chosen)
        if self.cache.claimed + price > self._capacity:
            self._epoch()
        if self.cache.claimed + price <= self._capacity:
            self.cache.stage(chosen, counts[rows], self.engine.metrics.rows_in, price)
        if self.cache.staged_bytes > max(self._capacity / 64, self.cache.claimed / 8):
            self._epoch()

    def _epoch(self) -> None:
        """Take new rows in, evict the least frequent; raise the threshold if many had to go."""
        before, size = self.cache.evicted, len(self.cache)
        self.cache.epoch(self._most_frequent)
        self.cache.hits //= 2
        evicted = self.cache.evicted - before
        self.engine.metrics.evicted += evicted
        if evicted > size / 16:
            self.threshold += 1

    def _most_frequent(self, cache: Cache) -> npt.NDArray[np.bool_]:
        """Return which rows stay: the most frequent join values that fill seven eighths."""
        starts, rows = cache.values()
        sizes = rows * cache.mean_row
        return np.repeat(keep_best(cache.hits[starts], sizes, self._capacity * 7 / 8)[0], rows)
