"""Model of ADAPTIVE: a cache of hot keys, sweeps for the rest, a split that finds itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from semistream.algorithms.adaptive import MOST_SWEEPS
from semistream.algorithms.worth import PAGE_COST, cache_pays
from semistream.cost.queue import Queue, fullest_first
from semistream.engine.cache import CacheCost
from semistream.engine.output import gathered_schema

if TYPE_CHECKING:
    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

__all__ = ["adaptive"]


class _Split(NamedTuple):
    keys: float
    cache: float
    window: float
    queue: Queue
    hits: float


def adaptive(s: Setting) -> Loop:
    """Sweep for the fullest pages behind a cache; memory goes where a byte saves more.

    The split is walked as the algorithm walks it: from a quarter for the cache, a sixteenth at a
    time, towards the larger of what a byte of the window and one of the cache save, until they are
    within a quarter of each other. A cache that then does not pay is given up.
    """
    split = _settled(s)
    if not cache_pays(split.hits / max(1e-9, 1 - s.known_absent), _share(s, split)):
        split = _split(s, 0.0)
    loop = s.loop(
        split.queue, split.window, hits=split.hits, cache_bytes=split.cache, keys=split.keys
    )
    run = _run_pages(s, split)
    buffers = int(s.plan.settings["buffer_pages"]) // int(s.plan.settings["run_pages"])
    return replace(loop, reads=1 / run, read_bytes=run * s.page_bytes, ahead=buffers - 1)


def _value(s: Setting) -> float:
    """Give the bytes of a join value in the cache, which holds only what comes out."""
    spec = s.task.spec
    page = spec.files.page_schema
    wanted = gathered_schema(spec)
    cost = CacheCost.of(wanted.insert(0, page.field(0)))
    return s.duplicates * float(cost(1, s.shape.payload_bytes + 8))


def _split(s: Setting, cache: float) -> _Split:
    divided, value = s.component("window"), _value(s)
    keys = min(cache / value, s.demand.values)
    window = divided - cache
    effective = keys * s.fit.cached
    rows = s.rows(window) * s.fit.fill
    queue = fullest_first(s.groups(effective), rows, rows / 4, MOST_SWEEPS)
    return _Split(keys, cache, window, queue, s.hit(effective))


def _settled(s: Setting) -> _Split:
    divided = s.component("window")
    largest = divided - int(s.plan.settings["least_window"])
    least, step = min(divided / 32, largest), divided / 16
    target = min(divided / 4, largest)
    seen: set[float] = set()
    while True:
        split = _split(s, target)
        way = _way(s, split)
        after = min(max(target + way * step, least), largest)
        if way == 0 or after == target or after in seen:
            return split
        seen.add(target)
        target = after


def _missed(s: Setting, split: _Split) -> float:
    return max(1e-9, 1 - split.hits - s.known_absent)


def _share(s: Setting, split: _Split) -> float:
    """Give what a row that waits costs in page reads, in rows."""
    return PAGE_COST * split.queue.reads / _missed(s, split)


def _way(s: Setting, split: _Split) -> int:
    """Tell whether the cache grows (1), shrinks (−1), or stays, as the algorithm weighs it."""
    share = _share(s, split)
    window = share * _missed(s, split) / split.window
    eighth = s.hit(split.keys) - s.hit(split.keys * 7 / 8)
    coldest = eighth / max(1e-9, split.keys / 8)
    cached = coldest * (1 + share) / (_value(s) / s.duplicates)
    if cached > 1.25 * window:
        return 1
    return -1 if cached < window / 1.25 else 0


def _run_pages(s: Setting, split: _Split) -> float:
    """Give how many neighbouring pages one read brings in the mean."""
    most = int(s.plan.settings["run_pages"])
    rows = s.rows(split.window) * s.fit.fill / 4
    wanted = min(1.0, split.queue.reads * rows / _missed(s, split) / s.pages)
    if wanted >= 1:
        return float(most)
    return float((1 - wanted**most) / (1 - wanted)) if most > 1 else 1.0
