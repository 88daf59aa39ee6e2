"""SSIJ: a batch of rows, cached pages first, then pages by index in their order on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.published.meshjoin import FIXED_IO
from semistream.algorithms.published.tuned_x_hybridjoin import pages_a_read
from semistream.engine.algorithm import Algorithm, share
from semistream.engine.plan import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from semistream.engine.pages import Page
    from semistream.engine.plan import Plan, Task
    from semistream.engine.window import Chunk

__all__ = ["Ssij"]


@dataclass(frozen=True)
class SsijSettings(Settings):
    """Pages that the cache holds."""

    cached_pages: int = 0


class Ssij(Algorithm):
    """Gather a batch; answer it from cached pages, then by all pages that it needs, in order.

    *Pending*: rows enter until the window is full. *Online*: the cached pages answer theirs.
    *Join*: the pages that the others wait for are read in the order in which they lie on disk, and
    no row enters until the batch is done. The pages that answer most stay in the cache.

    Parameters
    ----------
    cache
        The share of cached pages in the memory that they and the window divide, between 0 and 1.

    Notes
    -----
    From the papers (its abstract, MOIJ's section II and PCSRJ's section 2): the three phases, a
    cache of whole pages with a priority for each, pages by index, a plan of reads that spreads a
    seek over many rows. Decided here: the plan joins neighbouring pages to one read, and pages
    that no row wants along with them where they cost less than a seek (that of MESHJOIN's model);
    the priority of a page is how many rows it answered, halved with every batch; a page is cached
    when it answered more than the least priority; the share is fixed at a quarter, where the paper
    moves it by a rule that is not at hand; a page whose join value has several parts is not cached.

    References
    ----------
    Bornea, Deligiannakis, Kotidis, Vassalos: Semi-Streamed Index Join for Near-Real Time Execution
    of ETL Transformations, ICDE 2011.
    """

    name = "ssij"
    paper = "Bornea, Deligiannakis, Kotidis, Vassalos: Semi-Streamed Index Join, ICDE 2011"
    options = frozenset({"cache"})
    counts_matches = True

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.25, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: a disk buffer, cached pages, a mark a page, output, and the window."""
        k, pages = pages_a_read(task), task.spec.master.pages
        parts = replace(task.fixed(k), counters=pages)
        rest = share("cache", cache) * (task.memory - parts.total)
        cached = max(0, min(int(rest) // max(1, task.page_bytes), pages))
        parts = replace(parts, pinned=cached * task.page_bytes)
        return task.split(cls.name, parts, SsijSettings(buffer_pages=k, cached_pages=cached))

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        settings: SsijSettings = engine.plan.settings
        self._most, self._cached = settings.buffer_pages or 1, settings.cached_pages
        self._gap = int(FIXED_IO / max(1, engine.task.page_bytes))  # pages as dear as a seek
        self._wanted = np.zeros(engine.master.pages, dtype=np.bool_)
        self._from = 0  # no page before it is wanted in this batch
        self._joining = False
        self._pages: dict[int, Page] = {}
        self._priority: dict[int, float] = {}

    def pinned(self) -> Iterable[Page]:
        """Return the cached pages: the online phase."""
        return list(self._pages.values())

    def ready(self, rows: int) -> bool:  # noqa: ARG002
        """Let rows in while the batch is gathered: the pending phase."""
        return not self._joining

    def before_admission(self, chunk: Chunk) -> None:
        """Mark the pages for which rows wait."""
        self._wanted[chunk.pages] = True

    def next_pages(self) -> range:
        """Choose the next pages that the batch needs, as many as one read should bring."""
        self._joining = True
        start = self._from + int(self._wanted[self._from :].argmax())
        pages = range(start, self._end_of_read(start))
        self._wanted[pages.start : pages.stop] = False
        self._from = pages.stop
        return pages

    def _end_of_read(self, start: int) -> int:
        """Return the end of the pages to read from ``start`` on: gaps cost less than a seek."""
        end, master = start + 1, self.engine.master
        for page in range(start + 1, min(start + self._most, len(self._wanted))):
            if page - end > self._gap or len(master.parts(page)) > 1:
                break
            if self._wanted[page]:
                end = page + 1
        return end

    def around_oldest(self, count: int = 1) -> range:
        """Return the page of the oldest row; no other will wait for it then."""
        pages = super().around_oldest(count)
        self._wanted[pages.start : pages.stop] = False
        return pages

    def note_matches(self, page: Page, counts: npt.NDArray[np.int64]) -> None:
        """Note what a page answered; cache it if that is more than the least priority."""
        number = page.number
        self._wanted[number] = False
        answered = int(counts.sum())
        if number in self._pages:
            self._priority[number] = self._priority[number] / 2 + answered
        elif answered and self._make_room(answered):
            self._pages[number] = page.copy()
            self._priority[number] = answered

    def _make_room(self, answered: int) -> bool:
        if len(self._pages) < self._cached:
            return True
        least = min(self._priority, key=self._priority.__getitem__, default=None)
        if least is None or self._priority[least] >= answered:
            return False
        evicted = self._pages.pop(least)
        self.engine.metrics.evicted += int(self.engine.spec.files.index.rows[evicted.part])
        del self._priority[least]
        return True

    def end_round(self) -> int:
        """End the join phase when the batch is done."""
        if not self.engine.window.waiting:
            self._joining, self._from = False, 0
        return 0

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of the cached pages and of the marks."""
        held = sum(page.nbytes for page in self._pages.values())
        return {"pinned": held, "counters": self._wanted.nbytes}
