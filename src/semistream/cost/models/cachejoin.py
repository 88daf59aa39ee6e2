"""Models of CACHEJOIN and PCSRJ: a cache of frequent rows before HYBRIDJOIN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semistream.cost.queue import grouped, oldest_first

if TYPE_CHECKING:
    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

__all__ = ["cachejoin", "pcsrj"]

_FILLED = 15 / 16  # of the cache, in the mean: an epoch leaves seven eighths


def cachejoin(s: Setting) -> Loop:
    """Answer h_R keys before the window (PCSRJ's equations 1 to 3 for one node)."""
    return _node(s, 1)


def pcsrj(s: Setting) -> Loop:
    """CACHEJOINs side by side, each with every n-th page and its share of the memory.

    The paper's equations 2 and 3 double w and c_loop both, so that a second node brings nothing.
    Here each node has a loop of its own, they run at the same time, and all together answer n·w
    rows in one c_loop, as far as they do not wait for each other: that is part of what is measured.
    """
    return replace(_node(s, int(s.plan.settings["nodes"])), nodes=int(s.plan.settings["nodes"]))


def _node(s: Setting, nodes: int) -> Loop:
    window, cache = s.component("window") / nodes, s.component("cache") / nodes
    keys = min(nodes * cache * _FILLED / s.cached_value, s.demand.values)
    effective = keys * s.fit.cached
    shares = s.page_shares(effective)
    mine = shares[::nodes]  # of the rows that come to this node it has all
    queue = oldest_first(
        grouped(mine * (shares.sum() / max(mine.sum(), 1e-300))), s.waiting(window)
    )
    hits = s.hit(effective)
    return s.loop(queue, window, hits=hits, cache_bytes=cache, keys=keys / nodes)
