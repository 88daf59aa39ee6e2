"""Model of MOIJ: cache and window divide the memory join value by join value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.models.inequality import divide
from semistream.cost.queue import oldest_first

if TYPE_CHECKING:
    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

__all__ = ["moij"]


def moij(s: Setting) -> Loop:
    """HYBRIDJOIN behind a cache for which the inequality decides (equations 1 to 5).

    h_R follows from the inequality, and from it w_N, the share of the stream that the cached keys
    have, and w_S. The inequality's test of a page (c_I) is part of the measured cost of a step; to
    take a value in that passes it, and to evict it later (c_V), comes on top.
    """

    def length(cached: float, window: float) -> float:
        return oldest_first(s.groups(cached), s.waiting(window)).wait

    split = divide(s, length)
    queue = oldest_first(s.groups(split.effective), s.waiting(split.window))
    return s.loop(
        queue,
        split.window,
        hits=s.hit(split.effective),
        cache_bytes=split.cache,
        keys=split.keys,
        judged=split.judged(1 / max(queue.reads, 1e-12)),
    )
