"""Models of partition-based join, SSIJ and Derakhshan's: pages come for many rows at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from semistream.algorithms.published.parts.page_cache import PageCache
from semistream.cost.queue import fullest_first, grouped, in_batches, solve

if TYPE_CHECKING:
    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

__all__ = ["derakhshan", "partition_join", "ssij"]


def partition_join(s: Setting) -> Loop:
    """Hold hot pages; bring the partition for which most rows wait when the buffer is full."""
    window, pages = s.component("window"), int(s.plan.settings["buffer_pages"])
    held = int(s.component("cache") * 15 / 16 / PageCache.page_price(s.task) * s.fit.cached)
    hits, rest = s.held_pages(held)
    if pages > 1:
        order = np.random.default_rng(0).permutation(rest)
        rest = np.add.reduceat(order, np.arange(0, len(order), pages))
    rows = s.rows(window) * s.fit.fill
    loop = s.loop(
        fullest_first(grouped(rest), rows, rows / 4),
        window,
        hits=hits,
        cache_bytes=s.component("cache"),
    )
    return replace(loop, pages=pages, read_bytes=pages * s.page_bytes)


def ssij(s: Setting) -> Loop:
    """Gather a window of rows, answer them from cached pages, then read all pages they want.

    Pages are met in order; neighbours that are both wanted come in one read.
    """
    window, cached = s.component("window"), int(s.plan.settings["cached_pages"])
    shares = np.sort(s.page_shares())[::-1]
    pinned = float(shares[:cached].sum())
    rows = s.rows(window) * s.fit.fill / (1 - s.known_absent)  # of the stream, for a full window
    queue = in_batches(grouped(shares[cached:]), rows)
    loop = s.loop(queue, window, moves=1.0)
    wanted = queue.reads * rows / s.pages  # the chance that a page is
    most = int(s.plan.settings["buffer_pages"])
    run = (1 - wanted**most) / max(1e-9, 1 - wanted) if wanted < 1 else most
    return replace(
        loop,
        met=cached * loop.w / rows,
        pinned=loop.w * pinned,
        reads=1 / run,
        read_bytes=run * s.page_bytes,
    )


def derakhshan(s: Setting) -> Loop:
    """Fetch what a queue's rows lack, each page once; an LRU cache keeps what was used last.

    How long a key stays in an LRU cache follows from the cache being full (Che et al., 2002): after
    T_C rows without it, where Σ (1 − e^(−p·T_C)) is the number of keys that have room. A batch ends
    when the queue is full, or when its keys would fill half of the cache. Rows without a match ask
    for a page each time, for nothing of them stays.
    """
    keys = s.component("cache") * 7 / 8 / s.cached_value * s.fit.cached
    size, some = s.demand.classes
    share, unknown = s.matching * s.demand.share, s.demand.absent - s.known_absent

    def distinct(rows: float) -> float:
        return float((size * -np.expm1(-s.matching * some * rows)).sum())

    def asked(rows: float) -> float:
        return distinct(rows) + unknown * rows

    rows = min(_rows_of(s), solve(asked, s.component("cache") / 2 / s.cached_value))
    rows *= s.fit.fill
    stays = solve(distinct, keys)
    missed = share * np.exp(-share * stays)
    placed = len(s.demand.page)
    evenly = (float((s.demand.size[placed:] * missed[placed:]).sum()) + unknown) / s.pages
    lacking = np.bincount(s.demand.page, missed[:placed], minlength=s.pages) + evenly
    queue = in_batches(grouped(np.asarray(lacking, dtype=np.float64)), rows)
    hits = float((s.demand.size * (share - missed)).sum())
    loop = s.loop(queue, s.component("queue"), hits=hits, cache_bytes=s.component("cache"))
    return replace(loop, moves=0.0)


def _rows_of(s: Setting) -> float:
    """Give the rows of a full queue; one slice of five is kept free."""
    return max(1.0, s.component("queue") * 4 / 5 / (s.task.stream_row + 8 + 64))
