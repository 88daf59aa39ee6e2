"""Models of CACHEJOIN and PCSRJ: a cache of frequent rows before HYBRIDJOIN."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import exp, inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semistream.cost.models.inequality import STEEP, at_least, tails
from semistream.cost.queue import grouped, oldest_first, solve

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.cost.loop import Loop
    from semistream.cost.models.base import Setting

    Floats = npt.NDArray[np.float64]

__all__ = ["cachejoin", "pcsrj"]

_FILLED = 15 / 16  # of the cache, in the mean: an epoch leaves seven eighths
_EPOCH = 1 / 8  # of the cache's bytes, which new rows have when they are taken in
_FIRST = 2  # the threshold at the start
_NONE = 1e-12  # rows that enter for a stream row: what is left of a sum that rounds


def cachejoin(s: Setting) -> Loop:
    """Answer h_R keys before the window (PCSRJ's equations 1 to 3 for one node).

    The equations leave out the upkeep of the cache: a page of which a row enters costs more than
    another. How many do, see `_phases`.
    """
    return _node(s, 1)


def pcsrj(s: Setting) -> Loop:
    """CACHEJOINs side by side, each with every n-th page and its share of the memory.

    The paper's equations 2 and 3 double w and c_loop both, so that a second node brings nothing.
    Here each node has a loop of its own, they run at the same time, and all together answer n·w
    rows in one c_loop, which is the longer the more they wait for each other: that is measured.
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
    loop = s.loop(queue, window, hits=hits, cache_bytes=cache, keys=keys / nodes)
    return replace(loop, judged=_judged(s, nodes, effective, queue.wait, loop))


class _Phase(NamedTuple):
    """A time in which rows enter the cache at about the same pace."""

    end: float
    """In stream rows of the node."""
    entering: float
    """Master rows that enter for one of them."""


def _judged(s: Setting, nodes: int, effective: float, wait: float, loop: Loop) -> float:
    """Give the share of pages of which a row enters, from half the join's age to half as much more.

    The mean of 1 − e^(−e·w) over these rows, for w rows that a page answers and e that enter.
    """
    age = max(1.0, s.age / nodes)
    begin, end = age / 2, age * 3 / 2
    before = judged = 0.0
    for phase in _phases(s, nodes, effective, wait, loop):
        overlap = max(0.0, min(phase.end, end) - max(before, begin))
        judged += overlap * (1 - exp(-phase.entering * loop.w))
        before = phase.end
        if before >= end:
            break
    return judged / (end - begin)


def _phases(s: Setting, nodes: int, effective: float, wait: float, loop: Loop) -> Iterator[_Phase]:
    """Give what enters a node's cache while it fills, then while the threshold θ is 2, 3 and so on.

    A key of share p that is not cached finds Poisson's p·T rows when its page comes after T stream
    rows, and enters if these are θ: Σ P(n ≥ θ) / T do for a stream row. Once the cache is full they
    enter in epochs of an eighth of its bytes (new rows are there twice), and as many leave. Those
    are more than a sixteenth, so that θ rises with every epoch; and since the cache stays full, it
    never falls. So there is no rest, only ever longer epochs.
    """
    if wait <= 0:  # nobody waits where the cache has all
        return
    sizes, shares = s.demand.classes
    mean = s.matching * shares * nodes * wait
    row = s.duplicates * s.task.spec.files.row_bytes
    epoch = _EPOCH * s.component("cache") / nodes / (s.cached_value + row)
    end = _filling(sizes / nodes, mean, loop.keys, s.pages / nodes * loop.w / wait) * wait
    yield _Phase(end, loop.keys / max(end, 1e-9))
    lacking = np.clip(np.cumsum(sizes) - effective, 0.0, sizes) / nodes
    entering = 0.0
    for chance in islice(tails(mean), _FIRST, STEEP) if epoch > 0 else ():
        entering = float((lacking * chance).sum()) / wait
        end += epoch / entering if entering > _NONE else inf
        yield _Phase(end, entering)
    yield _Phase(inf, entering)


def _filling(sizes: Floats, mean: Floats, keys: float, around: float) -> float:
    """Give how often T passes until so many keys are cached.

    In each a key that is not has its chance. A cache that is not full after a round of R, which
    takes ``around``, lowers the threshold to 1.
    """

    def needed(threshold: int) -> float:
        misses = 1 - at_least(threshold, mean)
        return solve(lambda times: float((sizes * (1 - misses**times)).sum()), keys)

    return min(needed(_FIRST), around + needed(1))
