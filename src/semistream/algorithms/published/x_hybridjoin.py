"""X-HYBRIDJOIN: HYBRIDJOIN beside a page that never leaves memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.engine.plan import Settings
from semistream.engine.ranking import best_that_fit
from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import numpy.typing as npt

    from semistream.engine.pages import Page
    from semistream.engine.plan import Components, Plan, Task
    from semistream.engine.window import Chunk

__all__ = ["XHybridjoin", "XHybridjoinSettings"]

_CHOICES = ("counted", "first")
_STAYS = 1.1  # a pinned page stays unless another is asked for this much more often


@dataclass(frozen=True)
class XHybridjoinSettings(Settings):
    """How pinned pages are chosen; pages of the swappable and of the non-swappable part."""

    pinned: str = ""
    k: int = 1
    l: int = 1  # noqa: E741 - the paper's name


class XHybridjoin(Hybridjoin):
    """Hold the most popular page in memory; bring the page of the oldest row beside it.

    The disk buffer has two equal parts: the swappable one is HYBRIDJOIN's, the non-swappable one
    keeps its page. All rows that match either leave.

    Parameters
    ----------
    pinned
        ``"counted"``: the page that the stream asks for most, counted as rows arrive and chosen
        anew as counts change. ``"first"``: the first page, which is the most popular one only if
        key order is rank order, as the paper assumes.

    Notes
    -----
    From the paper: two equal parts, both met in every iteration. Decided here: the counting, with
    4 bytes a page; a page whose join value has several parts is never pinned.

    References
    ----------
    Naeem, Dobbie, Weber: X-HYBRIDJOIN for Near-Real-Time Data Warehousing, BNCOD 2011.
    """

    name = "x-hybridjoin"
    paper = "Naeem, Dobbie, Weber: X-HYBRIDJOIN for Near-Real-Time Data Warehousing, BNCOD 2011"
    options = frozenset({"pinned"})

    @classmethod
    def plan(cls, task: Task, *, pinned: str = "counted", **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: two pages, counters, output, and the window."""
        parts = cls.components(task, pinned, swappable=1, non_swappable=1)
        return task.split(cls.name, parts, XHybridjoinSettings(pinned=pinned))

    @staticmethod
    def components(task: Task, pinned: str, swappable: int, non_swappable: int) -> Components:
        """Return the bytes of all components but the window."""
        if pinned not in _CHOICES:
            raise OptionError.unknown("pinned", pinned, _CHOICES)
        counters = 4 * task.spec.master.pages if pinned == "counted" else 0
        pages = non_swappable * task.page_bytes
        return replace(task.fixed(swappable), pinned=pages, counters=counters)

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        settings: XHybridjoinSettings = engine.plan.settings
        self._by_count = settings.pinned == "counted"
        counted = engine.plan.components.counters > 0
        self._counts = np.zeros(engine.master.pages if counted else 0, dtype=np.uint32)
        self._pinned: dict[int, Page] = {}
        self._counted = 0
        self._due = 0
        self.l = settings.l

    @property
    def held(self) -> Collection[int]:
        """The numbers of the pages in the non-swappable part."""
        return self._pinned.keys()

    def pinned(self) -> Iterable[Page]:
        """Return the pages of the non-swappable part."""
        return self._pinned.values()

    def before_admission(self, chunk: Chunk) -> None:
        """Count for which pages rows come."""
        if len(self._counts):
            seen = np.bincount(chunk.pages, minlength=len(self._counts))
            self._counts += seen.astype(np.uint32)
        self._counted += len(chunk)

    def after_admission(self) -> None:
        """Choose the pinned pages: with the first rows, then after every four windows of rows."""
        if self._counted < self._due:
            return
        self._pin(self._popular(self.l))
        self._counts //= 2
        self._counted, self._due = 0, 4 * len(self.engine.window)

    def _popular(self, count: int) -> npt.NDArray[np.int64]:
        """Return the pages that are asked for most, or the first ones."""
        master = self.engine.master
        if not self._by_count:
            best = np.arange(min(count, master.pages))
        else:
            weight = self._counts.astype(np.float32)
            weight[list(self.held)] *= _STAYS
            best = best_that_fit(weight, np.ones(len(weight)), count)
        single = [page for page in best.tolist() if len(master.parts(page)) == 1]
        return np.array(single, dtype=np.int64)

    def _pin(self, pages: npt.NDArray[np.int64]) -> None:
        wanted = pages.tolist()
        self._pinned = {page: self._pinned[page] for page in self._pinned if page in set(wanted)}
        for page in wanted:
            if page not in self._pinned:
                self._pinned[page] = self.engine.read_page(page).copy()

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of the pinned pages and of the counters."""
        held = sum(page.nbytes for page in self._pinned.values())
        return {"pinned": held, "counters": self._counts.nbytes}
