"""Models of X-HYBRIDJOIN, its optimised and its tuned form: pages that never leave memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from semistream.algorithms.published.parts.page_cache import PageCache
from semistream.algorithms.published.tuned_x_hybridjoin import best_non_swappable
from semistream.cost.queue import grouped, oldest_first

if TYPE_CHECKING:
    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

__all__ = ["optimised_x_hybridjoin", "tuned_x_hybridjoin", "x_hybridjoin"]

_COUNTED = 1 << 24  # rows that the counts by which l is tuned are taken to be of


def x_hybridjoin(s: Setting) -> Loop:
    """Meet l pinned pages beside the page of the oldest row (equations 1 to 3)."""
    return _pinned(s, int(s.plan.settings["l"]), s.component("window"))


def tuned_x_hybridjoin(s: Setting) -> Loop:
    """Meet l pinned pages beside k that the oldest row chooses (equations 1 to 6).

    Where l is not given, it is what the algorithm finds by its counts of pages.
    """
    window, l = s.component("window"), int(s.plan.settings["l"])  # noqa: E741 - the paper's name
    if s.plan.settings["tuned"]:
        divided, least = window + s.component("pinned"), int(s.plan.settings["least_window"])
        counts = (s.page_shares() * _COUNTED).astype(np.uint32)
        l = best_non_swappable(counts, divided, s.page_bytes, s.task.window_row, least)  # noqa: E741
        window = divided - l * s.page_bytes
    return _pinned(s, l, window, int(s.plan.settings["k"]))


def _pinned(s: Setting, l: int, window: float, k: int = 1) -> Loop:  # noqa: E741
    """Rows of pinned pages enter the window, and leave at once.

    Of the quarter of a window that is let in at once, the pinned share is gone before a page is
    read: so much less of the window is full of rows that wait.
    """
    shares = np.sort(s.page_shares())[::-1]
    pinned, rest = float(shares[:l].sum()), shares[l:]
    if k > 1:  # neighbours come together; which pages are neighbours, chance decides
        rest = np.add.reduceat(
            np.random.default_rng(0).permutation(rest), np.arange(0, len(rest), k)
        )
    waiting = s.waiting(window) * (1 - pinned / 7)
    queue = oldest_first(grouped(rest), waiting)
    loop = s.loop(queue, window)
    admissions = loop.w_S / (s.rows(window) / 4)
    return replace(
        loop, pages=k, read_bytes=k * s.page_bytes, met=l * admissions, pinned=loop.w * pinned
    )


def optimised_x_hybridjoin(s: Setting) -> Loop:
    """Answer the rows of pinned pages before the window; the rest as HYBRIDJOIN does."""
    window, l = s.component("window"), int(s.plan.settings["l"])  # noqa: E741 - the paper's name
    hits, rest = s.held_pages(l)
    queue = oldest_first(grouped(rest), s.waiting(window))
    return s.loop(queue, window, hits=hits, cache_bytes=l * PageCache.page_price(s.task))
