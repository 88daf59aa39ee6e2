"""How a stream's rows load the workers among which they are divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semistream.cost.demand import Demand

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Load", "by_key", "by_page"]

_DRAWS = 15  # divisions at random: which worker a hash gives a key to is chance
_HOT = 8  # a page is hot when it has more than this part of a worker's fair share


@dataclass(frozen=True, eq=False)
class Load:
    """What comes to the worker that has most."""

    share: float
    """Its share of all stream rows."""
    skew: float
    """The largest load to the mean one, in the median of several divisions."""
    demand: Demand
    """What its rows ask for."""


def by_key(demand: Demand, workers: int) -> Load:
    """Divide rows by a hash of their key: all rows of a key go to one worker, however many.

    Examples
    --------
    >>> zipf = Demand.zipf(values=100_000, exponent=1.0, pages=100)
    >>> even = Demand.zipf(values=100_000, exponent=0.0, pages=100)
    >>> by_key(zipf, 8).skew > 1.3, by_key(even, 8).skew < 1.05
    (True, True)
    """
    placed = len(demand.page)
    head, tail = demand.share[:placed], demand.size[placed:] / workers
    evenly = float(tail @ demand.share[placed:])
    draw = _typical(head, evenly, workers)
    mine = draw.owner == draw.largest
    size = np.concatenate([np.ones(int(mine.sum())), tail])
    share = np.concatenate([head[mine], demand.share[placed:]])
    return _load(demand, draw, workers, (size, share, demand.page[mine], demand.pages))


def by_page(demand: Demand, workers: int) -> Load:
    """Divide rows by the page of their key, as `enrich` routes them.

    Rows of pages with more than an eighth of a fair share are dealt out in turn: every worker
    has them, and no other page is read by two.

    Examples
    --------
    >>> zipf = Demand.zipf(values=100_000, exponent=1.0, pages=1000)
    >>> by_page(zipf, 8).skew < 1.25 < by_key(zipf, 8).skew
    True
    """
    shares = demand.page_shares()
    hot = shares > 1 / (_HOT * workers)
    dealt = float(shares[hot].sum()) / workers
    cold = np.where(hot, 0.0, shares)
    draw = _typical(cold, dealt, workers)
    kept = hot | (draw.owner == draw.largest)
    weight = np.where(hot, 1 / workers, 1.0) * kept
    placed = len(demand.page)
    mine = kept[demand.page]
    head = demand.share[:placed][mine] * weight[demand.page[mine]]
    order = np.argsort(-head, kind="stable")
    number = np.cumsum(kept) - 1  # the worker's pages, counted
    page = number[demand.page[mine]][order].astype(np.int32)
    size = np.concatenate([np.ones(len(head)), demand.size[placed:] * kept.mean()])
    tail = demand.share[placed:] * weight.sum() / max(1, int(kept.sum()))
    share = np.concatenate([head[order], tail])
    return _load(demand, draw, workers, (size, share, page, max(1, int(kept.sum()))))


class _Draw(NamedTuple):
    """One division at random."""

    owner: Ints
    """The worker of each key or page; the same for the same numbers."""
    largest: int
    """The worker with the largest load."""
    share: float
    """Its share of matching rows."""


def _draw(seed: int, shares: Floats, evenly: float, workers: int) -> _Draw:
    owner = np.random.default_rng(seed).integers(0, workers, len(shares))
    loads = np.bincount(owner, shares, minlength=workers) + evenly
    return _Draw(owner, int(loads.argmax()), float(loads.max()))


def _typical(shares: Floats, evenly: float, workers: int) -> _Draw:
    """Give the draw whose largest load is the median one."""
    largest = [_draw(seed, shares, evenly, workers).share for seed in range(_DRAWS)]
    return _draw(int(np.argsort(largest)[_DRAWS // 2]), shares, evenly, workers)


def _load(
    demand: Demand,
    draw: _Draw,
    workers: int,
    parts: tuple[Floats, Floats, npt.NDArray[np.int32], int],
) -> Load:
    """Make the shares of a worker add up to 1; rows without a match are divided evenly."""
    size, share, page, pages = parts
    absent = demand.absent / workers
    all_rows = (1 - demand.absent) * draw.share + absent
    share = share / float(size @ share)
    mine = Demand(size, share, page, pages, absent / all_rows, demand.matches)
    return Load(all_rows, all_rows * workers, mine)
