"""Models of MESHJOIN, R-MESHJOIN and SSBJ: a cyclic scan of R."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from semistream.cost.models.inequality import divide
from semistream.cost.queue import Queue
from semistream.cost.scan import Scan, filled

if TYPE_CHECKING:
    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

__all__ = ["meshjoin", "ssbj"]

_USUAL = 0.85  # how full a window is, where batches or its own size are not known


def meshjoin(s: Setting) -> Loop:
    """Let w rows in for every b pages (equations 1 to 5).

    Equation 3, w = h·b/N_R with h rows in the window. σ is w·N_R/(b·R): every row that has a match
    is output once in a round. The paper probes H with each tuple of the b pages, b·v_P/v_R times
    c_H; here rows are chained by page, so a page costs a fixed step and its matches. In
    R-MESHJOIN one read brings b pages that are met in l segments: the same counts. How much of h is
    used, see `filled`.
    """
    return _scan(s, s.component("window"))


def _scan(s: Setting, window: float, hits: float = 0.0) -> Loop:
    b = min(int(s.plan.settings["buffer_pages"]), s.pages)
    missed = max(1e-9, 1 - hits - s.known_absent)
    used = filled(_paced(s, window, missed)) if s.batch else _USUAL
    rows = s.rows(window) * s.fit.fill * used
    queue = Queue(s.pages * missed / rows, rows / missed)
    one = s.loop(queue, window, hits=hits)
    several = {name: b * getattr(one, name) for name in ("w_S", "w_N", "w_F", "silent")}
    return replace(one, **several, pages=b, reads=1, read_bytes=b * s.page_bytes)


def _paced(s: Setting, window: float, missed: float) -> Scan:
    """Give what decides how full the window is; an iteration meets a segment, if b has several."""
    settings, task = s.plan.settings, s.task
    met = int(settings.get("segment_pages", settings["buffer_pages"]))
    steps = max(1, ceil(s.pages / met))
    return Scan(steps, int(window), task.cost, task.stream_row, s.batch, missed)


def ssbj(s: Setting) -> Loop:
    """MESHJOIN behind a cache for which MOIJ's inequality decides.

    The queue's length is a round of the scan: as many stream rows as the window's rows are missed.
    """

    def length(cached: float, window: float) -> float:
        missed = max(1e-9, 1 - s.hit(cached) - s.known_absent)
        return s.rows(window) * s.fit.fill * _USUAL / missed

    split = divide(s, length)
    loop = _scan(s, split.window, s.hit(split.effective))
    judged = loop.pages * split.judged(loop.w / loop.pages)
    return replace(loop, cache_bytes=split.cache, keys=split.keys, judged=judged)
