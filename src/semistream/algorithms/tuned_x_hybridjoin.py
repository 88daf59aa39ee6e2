"""Tuned X-HYBRIDJOIN: k swappable pages beside l that never leave memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.base import positive
from semistream.algorithms.x_hybridjoin import XHybridjoin

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.plan import Plan, Task

__all__ = ["TunedXHybridjoin", "best_non_swappable", "page_reads", "pages_a_read"]

_SWAPPABLE = 128 * 1024  # bytes at which a read's fixed cost and its transfer are about equal
_CLASSES = 1024  # pages are grouped by popularity so that tuning takes milliseconds


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
    change, so that the fewest pages are read for a stream row (`page_reads`), and the window gets
    what the pinned pages leave. k is chosen as the pages that 128 KB hold, or an eighth of the
    budget: below that size a read costs mostly its fixed part.

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
        parts["counters"] = 4 * task.spec.master.pages if l is None else parts["counters"]
        settings: dict[str, int | float | str | bool] = {"pinned": pinned, "k": k, "l": given}
        settings |= {"tuned": l is None, "buffer_pages": k}
        if l is None:
            window = (task.memory - sum(parts.values())) // 16
            settings["least_window"] = max(task.least_window, window)
        return task.split(cls.name, parts, settings)

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self._k = int(engine.plan.settings["k"])
        self._tuned = bool(engine.plan.settings["tuned"])
        components = engine.plan.components
        self._divided = components["window"] + components["pinned"]

    def next_pages(self) -> range:
        """Choose the k neighbouring pages among which is that of the oldest row."""
        return self.around_oldest(self._k)

    def admitted(self) -> None:
        """Tune l when pages are chosen anew; pages are loaded once the window has shrunk."""
        task = self.engine.task
        if self._tuned and self._counted >= self._due:
            least = int(self.engine.plan.settings["least_window"])
            self.l = best_non_swappable(
                self._counts, self._divided, task.page_bytes, task.window_row, least
            )
            self.engine.window.capacity = self._divided - self.l * task.page_bytes
            self._pin(self._popular(self.l)[: len(self._pinned)])
        if self.engine.window.fits_now():
            super().admitted()


def pages_a_read(task: Task) -> int:
    """Give the pages that one read should bring: 128 KB, or an eighth of the budget."""
    wanted = min(_SWAPPABLE, task.memory // 8) // max(1, task.page_bytes)
    return max(1, min(wanted, task.spec.master.pages))


def best_non_swappable(
    counts: npt.NDArray[np.uint32], memory: int, page_bytes: int, row_bytes: float, least: int
) -> int:
    """Give the number of pinned pages with which the fewest pages are read for a stream row.

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
    reads = [page_reads(share[n:], (memory - n * page_bytes) / row_bytes) for n in candidates]
    return int(candidates[int(np.argmin(reads))])


def page_reads(share: npt.NDArray[np.float64], window_rows: float) -> float:
    """Give the pages read for a stream row when the oldest row chooses the page.

    A page with share p of the stream is asked for after 1/p rows, then waits until that row is the
    oldest, T rows later: so it is read once in 1/p + T rows, and meanwhile a mean of
    pT(1 + pT/2) / (1 + pT) rows wait for it. T follows from the window being full.
    """
    share = _grouped(share[share > 0])
    if not share.size:
        return 0.0
    weight, p = share[:, 0], share[:, 1]
    low, high = 0.0, 4 * window_rows / max(1e-12, float((weight * p).sum()))
    for _ in range(50):
        middle = (low + high) / 2
        x = p * middle
        waiting = float((weight * x * (1 + x / 2) / (1 + x)).sum())
        low, high = (middle, high) if waiting < window_rows else (low, middle)
    return float((weight * p / (1 + p * low)).sum())


def _grouped(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Give (how many pages, their mean share) for groups of pages of about the same share."""
    if not len(share):
        return np.empty((0, 2))
    starts = np.unique(np.linspace(0, len(share), _CLASSES + 1, dtype=np.int64)[:-1])
    sizes = np.diff(starts, append=len(share))
    return np.column_stack([sizes, np.add.reduceat(share, starts) / sizes])
