"""Tuned X-HYBRIDJOIN: k swappable pages beside l that never leave memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.published.parts.oldest_first import grouped, oldest_first
from semistream.algorithms.published.x_hybridjoin import XHybridjoin, XHybridjoinSettings
from semistream.engine.algorithm import positive

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.engine.plan import Plan, Task

__all__ = ["TunedXHybridjoin", "best_non_swappable", "pages_a_read"]

_SWAPPABLE = 128 * 1024  # bytes at which a read's fixed cost and its transfer are about equal


@dataclass(frozen=True)
class TunedSettings(XHybridjoinSettings):
    """Whether l is chosen anew as counts change."""

    tuned: bool | None = None


class TunedXHybridjoin(XHybridjoin):
    """Divide the memory between k swappable pages, l pinned pages and the window by tuning.

    Parameters
    ----------
    k, l
        Pages of the swappable and of the non-swappable part; chosen where not given.
    pinned
        As for X-HYBRIDJOIN.

    Notes
    -----
    From the paper: k and l as separate sizes, tuned. Decided here: the paper tunes by a model of
    one known Zipf distribution; without one, l is chosen from the counts of the pages, anew as they
    change, so that the fewest pages are read for a stream row (`oldest_first`),
    and the window gets what the pinned pages leave. k is chosen as the pages that 128 KB hold, or
    an eighth of the budget: below that size a read costs mostly its fixed part.

    References
    ----------
    Naeem: Tuned X-HYBRIDJOIN for Near-Real-Time Data Warehousing, 2013.
    """

    name = "tuned-x-hybridjoin"
    paper = "Naeem: Tuned X-HYBRIDJOIN for Near-Real-Time Data Warehousing, 2013"
    options = frozenset({"pinned", "k", "l"})

    @classmethod
    def plan(
        cls,
        task: Task,
        *,
        pinned: str = "counted",
        k: int | None = None,
        l: int | None = None,  # noqa: E741 - the paper's name
        **_: Any,  # noqa: ANN401
    ) -> Plan:
        """Split the budget: k pages, l pages, counters, output, and the window."""
        k = pages_a_read(task) if k is None else min(positive("k", k), task.spec.master.pages or 1)
        given = min(positive("l", l), max(1, task.spec.master.pages)) if l is not None else 1
        parts = cls.components(task, pinned, swappable=k, non_swappable=given)
        least = None
        if l is None:
            parts = replace(parts, counters=4 * task.spec.master.pages)
            least = max(task.least_window, (task.memory - parts.total) // 16)
        settings = TunedSettings(
            buffer_pages=k, least_window=least, pinned=pinned, k=k, l=given, tuned=l is None
        )
        return task.split(cls.name, parts, settings)

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        settings: TunedSettings = engine.plan.settings
        self._k, self._tuned = settings.k, settings.tuned
        components = engine.plan.components
        self._divided = components.window + components.pinned

    def next_pages(self) -> range:
        """Choose the k neighbouring pages among which is that of the oldest row."""
        return self.around_oldest(self._k)

    def after_admission(self) -> None:
        """Tune l when pages are chosen anew; pages are loaded once the window has shrunk."""
        task = self.engine.task
        if self._tuned and self._counted >= self._due:
            least = self.engine.least_capacity
            self.l = best_non_swappable(
                self._counts, self._divided, task.page_bytes, task.window_row, least
            )
            self.engine.window.capacity = self._divided - self.l * task.page_bytes
            self._pin(self._popular(self.l)[: len(self._pinned)])
        if self.engine.window.fits_now():
            super().after_admission()


def pages_a_read(task: Task) -> int:
    """Return the pages that one read should bring: 128 KB, or an eighth of the budget."""
    wanted = min(_SWAPPABLE, task.memory // 8) // max(1, task.page_bytes)
    return max(1, min(wanted, task.spec.master.pages))


def best_non_swappable(
    counts: npt.NDArray[np.uint32], memory: int, page_bytes: int, row_bytes: float, least: int
) -> int:
    """Return the number of pinned pages with which the fewest pages are read for a stream row.

    Parameters
    ----------
    counts
        How often each page was asked for.
    memory
        Bytes to divide between pinned pages and window.
    page_bytes, row_bytes
        Bytes of a page (v_P), and of a row in the window.
    least
        Bytes that the window keeps.
    """
    most = max(1, min((memory - least) // page_bytes, len(counts) - 1))
    candidates = sorted({1, *np.geomspace(1, most, 24).astype(int).tolist()})
    share = np.sort(counts)[::-1] / max(1, int(counts.sum()))
    rows = [(memory - n * page_bytes) / row_bytes for n in candidates]
    reads = [
        oldest_first(grouped(share[n:]), h).reads for n, h in zip(candidates, rows, strict=True)
    ]
    return int(candidates[int(np.argmin(reads))])
