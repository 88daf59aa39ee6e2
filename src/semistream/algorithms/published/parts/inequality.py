"""The cache inequality: which join values take less memory in a cache than as waiting rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.arrow.memory import take_rows
from semistream.engine.algorithm import Algorithm
from semistream.engine.cache import Cache
from semistream.engine.plan import Settings
from semistream.engine.ranking import value_starts

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from semistream.engine.pages import Page
    from semistream.engine.plan import Components, Task

__all__ = ["CacheInequality"]

_EVICTION = 10  # iterations between two eviction processes (line 32)
_STAGING = 16  # this part of the memory holds rows on their way into the cache


class CacheInequality(Algorithm):
    """What MOIJ and SSBJ share: cache and window divide the memory, join value by join value.

    A join value with m master rows of v_R bytes, for which n stream rows of v_S bytes wait in a
    full queue, is cached if m·v_R < n·v_S. Line numbers are those of MOIJ's Algorithm 1. Mix it in
    before the class that chooses pages.
    """

    counts_matches = True

    @staticmethod
    def divided(task: Task, parts: Components) -> tuple[Components, Settings]:
        """Return the components beside the window, the cache's staging included, and settings."""
        rest, largest = task.memory - parts.total, task.cache_cost.largest
        staging = int(min(max(0, rest) // _STAGING, largest / 4))
        divided = rest - staging
        least = int(max(task.least_window, divided // 16, divided - largest))
        return replace(parts, cache=staging), Settings(least_window=least)

    @staticmethod
    def least_divided(task: Task) -> int:
        """Return the least bytes of window and staging together."""
        return task.least_window * _STAGING // (_STAGING - 1) + 1

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        components, settings = engine.plan.components, engine.plan.settings
        self.cache: Cache = Cache(engine.master.page_schema, components.window)  # H_R
        self._staging = components.cache
        self._divided = components.window  # what cache and window have together
        self._largest_cache = self._divided - settings.least_window
        self._v_s = engine.task.window_row
        self._v_r = self.cache.cost(1, engine.master.row_bytes)
        self._evict = np.zeros(0, dtype=np.int64)  # codes that lost
        self._judge_at = 0  # no value was counted for the length of the queue before that row

    def note_matches(self, page: Page, counts: npt.NDArray[np.int64]) -> None:
        """Apply the cache inequality to each join value of the page (lines 22 to 27)."""
        if counts.max() * self._v_s <= self._v_r:
            return  # not even a value with one row wins
        batch = page.batch
        codes = batch.column(0).to_numpy()
        firsts = value_starts(codes)
        m = np.diff(firsts, append=len(codes))
        wins = counts[firsts] * self._v_s > m * self._v_r
        if wins.any() and self._has_room(int(m[wins].sum()) * self._v_r):
            self._stage(take_rows(batch, np.flatnonzero(np.repeat(wins, m))))

    def _has_room(self, price: float) -> bool:
        staged, claimed = self.cache.staged_bytes + price, self.cache.claimed + price
        return bool(staged <= self._staging and claimed <= self._largest_cache)

    def _stage(self, rows: pa.RecordBatch) -> None:
        """Note rows for the cache and take their memory from the window's next input (line 25)."""
        if self._has_room(self.cache.price(rows)):
            hits = np.zeros(rows.num_rows, dtype=np.int64)
            self.cache.stage(rows, hits, self.engine.metrics.rows_in)
            self._divide()

    def _divide(self) -> None:
        self.engine.window.capacity = int(self._divided - self.cache.claimed)

    def after_admission(self) -> None:
        """Move rows into and out of the cache, once the window has released memory for them."""
        due = self.cache.staged_bytes > max(self._staging / 8, self.cache.claimed / 16)
        lost = 32 * len(self._evict) > len(self.cache)
        if (due or lost) and self.engine.window.fits_now():
            evict, self._evict = self._evict, self._evict[:0]
            self.cache.epoch(lambda cache: ~np.isin(cache.codes, evict))
            self.engine.metrics.evicted = self.cache.evicted
            self._divide()

    def end_round(self) -> int:
        """Every ten iterations, find join values that take more memory here (lines 32 to 42)."""
        metrics = self.engine.metrics
        due = not metrics.iterations % _EVICTION and metrics.rows_in >= self._judge_at
        if due and len(self.cache) and self.engine.window.waiting:
            self._judge()
        return super().end_round()

    def queue_rows(self) -> int:
        """Return the length of the queue: how many stream rows come while one waits."""
        return max(1, self.engine.metrics.rows_in - self.engine.window.oldest_count)

    def _judge(self) -> None:
        metrics, cache = self.engine.metrics, self.cache
        queue = self.queue_rows()
        firsts, m = cache.values()
        seen = metrics.rows_in - cache.born[firsts]
        judged = seen >= queue
        n = cache.hits[firsts] * (queue / np.maximum(seen, 1))
        loses = judged & (m * self._v_r > n * self._v_s)
        self._evict = np.union1d(self._evict, cache.codes[firsts[loses]])
        again = firsts[judged]
        cache.hits[again], cache.born[again] = 0, metrics.rows_in
        self._judge_at = int(cache.born[firsts].min()) + queue
