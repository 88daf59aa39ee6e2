"""Optimised X-HYBRIDJOIN: the pinned pages answer in a phase of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semistream.algorithms.published.parts.page_cache import PageCache
from semistream.algorithms.published.x_hybridjoin import XHybridjoin, XHybridjoinSettings
from semistream.engine.algorithm import positive

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from semistream.engine.plan import Plan, Task

__all__ = ["OptimisedXHybridjoin"]

_PINNED = 0.25  # of the memory that pinned pages and window divide


class OptimisedXHybridjoin(XHybridjoin):
    """Answer the rows of popular pages before the window; the others as HYBRIDJOIN does.

    In X-HYBRIDJOIN a row that a pinned page answers still enters the window, and every round meets
    the pinned pages. Here the stream probes them as it arrives (the stream-probing phase), and only
    what they do not answer waits for the page of the oldest row (the disk-probing phase).

    Parameters
    ----------
    l
        Pages that are pinned; a quarter of the memory, and at least one, where not given.
    pinned
        As for X-HYBRIDJOIN.

    Notes
    -----
    From the papers (its abstract, and PCSRJ's section 2): two phases that work independently, one
    for the frequent part of R in memory, one for the rest. Decided here: how many pages are pinned,
    for the cost model by which the paper tunes them is not at hand; their rows lie in a hash table,
    as a stream that probes them wants it; pages are chosen by counting, as in X-HYBRIDJOIN, rows
    that a pinned page answered included. A row that a pinned page lacks waits like any other: the
    paper has no absent rows.

    References
    ----------
    Naeem, Dobbie, Weber: Optimised X-HYBRIDJOIN for Near-Real-Time Data Warehousing, ADC 2012.
    """

    name = "optimised-x-hybridjoin"
    paper = "Naeem, Dobbie, Weber: Optimised X-HYBRIDJOIN for Near-Real-Time Warehousing, ADC 2012"
    options = frozenset({"pinned", "l"})

    @classmethod
    def plan(
        cls,
        task: Task,
        *,
        pinned: str = "counted",
        l: int | None = None,  # noqa: E741 - the paper's name
        **_: Any,  # noqa: ANN401
    ) -> Plan:
        """Split the budget: one page, l pinned ones as rows, counters, output, and the window."""
        # A page exists twice while its rows are taken in.
        parts = cls.components(task, pinned, swappable=1, non_swappable=1)
        rest, price = task.memory - parts.total, PageCache.page_price(task)
        chosen = min(int(_PINNED * rest), rest - task.least_window) // price
        pages = max(1, chosen) if l is None else positive("l", l)
        pages = min(pages, max(1, task.spec.master.pages))
        pages = max(1, task.cache_bytes(pages * price) // price)
        parts = replace(parts, pinned=parts.pinned + pages * price)
        return task.split(cls.name, parts, XHybridjoinSettings(pinned=pinned, l=pages))

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self.cache: PageCache = PageCache(engine.master, engine.plan.components.pinned)
        self._held: set[int] = set()

    @property
    def held(self) -> set[int]:
        """The pages that are pinned."""
        return self._held

    def after_admission(self) -> None:
        """Choose the pinned pages as X-HYBRIDJOIN does; what they answered counts for them."""
        if self._counted >= self._due and len(self._counts):
            pages, hits = self.cache.asked()
            self._counts[pages] += hits.astype(self._counts.dtype)
        super().after_admission()

    def _pin(self, pages: npt.NDArray[np.int64]) -> None:
        wanted = set(pages.tolist())
        new = (self.engine.read_page(page).batch for page in sorted(wanted - self._held))
        self.cache.exchange(self._held - wanted, new)
        self._held = wanted

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of the pinned pages and of the counters."""
        return {"pinned": self.cache.nbytes, "counters": self._counts.nbytes}
