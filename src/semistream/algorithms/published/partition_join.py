"""Partition-based join: the partition for which most rows wait comes, hot pages stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.published.parts.page_cache import PageCache
from semistream.arrow.memory import take_rows
from semistream.engine.algorithm import Algorithm, positive, share
from semistream.engine.plan import Settings
from semistream.engine.ranking import best_that_fit

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.engine.pages import Page
    from semistream.engine.plan import Plan, Task
    from semistream.engine.window import Chunk

__all__ = ["PartitionJoin"]

_STAYS = 2  # a page that is held stays unless another answered so many times more rows
_AGES = 8  # wait buffers of rows: rows of a cold page may gather for as long


@dataclass(frozen=True)
class PartitionJoinSettings(Settings):
    """Rows that wait for a partition when it is brought."""

    threshold: int = 0


class PartitionJoin(Algorithm):
    """Answer rows of pages in memory at once; the others wait, partition by partition.

    The first level of the hash table holds pages of hot partitions. A row that it does not answer
    goes to the second level, a wait buffer cut into partitions. A partition is brought when more
    rows than the threshold wait for it, or, when the buffer is full, if it has most of them; all of
    them leave.

    Parameters
    ----------
    cache
        The first level's share of the memory that both levels divide, between 0 and 1.
    threshold
        Rows that wait for a partition when it is brought; a sixteenth of the wait buffer where not
        given.
    pages
        Neighbouring pages of R in a partition.

    Notes
    -----
    From the papers (MOIJ's section II and PCSRJ's section 2): two levels, a wait buffer by
    partition, the threshold, a probe when the buffer is full, a page-level cache, no bound on a
    wait (`max_wait` gives one). Decided here: a full buffer brings its largest partition; the
    defaults; a page that was brought is held if it answered twice as many rows as the least popular
    page here; pages enter and leave in epochs; counts are halved after every eight wait buffers of
    rows; a page whose join value has several parts is not held.

    References
    ----------
    Chakraborty, Singh: A Partition-Based Approach to Support Streaming Updates over Persistent
    Data in an Active Datawarehouse, IPDPS 2009.
    """

    name = "partition-join"
    paper = "Chakraborty, Singh: A Partition-Based Approach to Streaming Updates, IPDPS 2009"
    options = frozenset({"cache", "threshold", "pages"})
    counts_matches = True

    @classmethod
    def plan(
        cls,
        task: Task,
        *,
        cache: float = 0.25,
        threshold: int | None = None,
        pages: int = 1,
        **_: Any,  # noqa: ANN401
    ) -> Plan:
        """Split the budget: a partition, the first level, counters, output, and the window."""
        total = max(1, task.spec.master.pages)
        pages = min(positive("pages", pages), total)
        parts = replace(task.fixed(pages), counters=4 * -(-total // pages))
        held = task.cache_bytes(share("cache", cache) * (task.memory - parts.total))
        plan = task.split(cls.name, replace(parts, cache=held), Settings(buffer_pages=pages))
        tuned = max(2, (plan.settings.window_rows or 0) // 16)
        chosen = tuned if threshold is None else positive("threshold", threshold)
        return replace(plan, settings=PartitionJoinSettings(**plan.settings, threshold=chosen))

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        settings, components = engine.plan.settings, engine.plan.components
        self.threshold: int = settings.threshold
        self._pages: int = settings.buffer_pages
        self._waiting = np.zeros(components.counters // 4, dtype=np.int32)
        self._capacity = components.cache
        self.cache: PageCache = PageCache(engine.master, self._capacity)
        self._age_at = 0  # in stream rows
        self._least = 1  # rows that a page must have answered to be held

    def before_admission(self, chunk: Chunk) -> None:
        """Count the rows that wait for each partition."""
        np.add.at(self._waiting, chunk.pages // self._pages, 1)

    def ready(self, rows: int) -> bool:  # noqa: ARG002
        """Let rows in while no partition is over its threshold."""
        return int(self._waiting.max(initial=0)) < self.threshold

    def next_pages(self) -> range:
        """Choose the partition for which most rows wait."""
        return self._partition(int(self._waiting.argmax()))

    def around_oldest(self, count: int = 1) -> range:
        """Return the partition of the oldest row."""
        return self._partition(super().around_oldest(count).start // self._pages)

    def _partition(self, number: int) -> range:
        self._waiting[number] = 0  # for all of them leave
        start = number * self._pages
        return range(start, min(start + self._pages, self.engine.master.pages))

    def note_matches(self, page: Page, counts: npt.NDArray[np.int64]) -> None:
        """Hold a page that answered more rows than the least popular one here."""
        if counts.sum() < self._least:
            return
        batch = page.batch
        price = self.cache.price(batch)
        if price > self._capacity:
            return
        if self.cache.claimed + price > self._capacity:
            self._epoch(price)
        if self.cache.claimed + price <= self._capacity:
            rows = take_rows(batch, np.arange(batch.num_rows))
            self.cache.stage(rows, counts, self.engine.metrics.rows_in, price)
        if self.cache.staged_bytes > self._capacity / 8:
            self._epoch(0)

    def _epoch(self, room: float) -> None:
        """Take new pages in; the least popular leave until there is so much room."""
        before = self.cache.evicted
        most = min(self._capacity * 7 / 8, self._capacity - room)
        self.cache.epoch(lambda _: self._most_popular(most))
        if self.engine.metrics.rows_in >= self._age_at:
            self._age()
        if self.cache.evicted > before:
            least = int(self.cache.asked()[1].min()) if len(self.cache) else 0
            self._least = _STAYS * least + 1
        self.engine.metrics.evicted = self.cache.evicted

    def _age(self) -> None:
        """Halve all counts, so that the first level follows a stream that drifts."""
        self.cache.hits //= 2
        self._least = max(1, self._least // 2)
        rows = self.engine.plan.settings.window_rows or 0
        self._age_at = self.engine.metrics.rows_in + _AGES * rows

    def _most_popular(self, most: float) -> npt.NDArray[np.bool_]:
        """Return which rows stay: those of the most popular pages that take so many bytes."""
        cache = self.cache
        pages, hits = cache.asked()
        each = cache.cost(len(cache), cache.batch.nbytes) / max(1, len(pages))
        best = best_that_fit(hits, np.ones(len(hits)), most // max(1, each))
        return cache.rows_of(pages[best].tolist())

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of the first level and of the counters."""
        return {"cache": self.cache.nbytes, "counters": self._waiting.nbytes}
