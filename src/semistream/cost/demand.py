"""What a stream asks of a master: how often each key, and on which page it lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from semistream.errors import OptionError
from semistream.workloads import Zipf

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Demand"]

_PLACED = 64  # hottest keys for each page that have a page of their own; the others lie evenly
_MOST_PLACED = 1 << 20
_TAIL_GROUPS = 512
_CLASSES = 1024


@dataclass(frozen=True, eq=False)
class Demand:
    """The shares of stream rows that ask for each key of a master, hottest keys first.

    Keys of about the same share are a group. The first groups are single keys, each with its page;
    the keys of all others are taken to lie evenly on all pages.

    Parameters
    ----------
    size
        How many keys each group has.
    share
        The share of matching stream rows that ask for one key of the group; with ``size`` it adds
        up to 1.
    page
        The pages of the first groups, which have one key each.
    pages
        How many pages the master has (the papers' N_R).
    absent
        The share of stream rows that have no match.
    matches
        Master rows for a stream row that has any; None: as many as a key of the master has.

    Examples
    --------
    >>> demand = Demand.zipf(values=1_000_000, exponent=1.0, pages=1000)
    >>> round(demand.hit(10_000), 3), round(float(demand.page_shares().sum()), 6)
    (0.68, 1.0)
    """

    size: Floats
    share: Floats
    page: npt.NDArray[np.int32]
    pages: int
    absent: float = 0.0
    matches: float | None = None

    @classmethod
    def zipf(
        cls, values: int, exponent: float, pages: int, *, absent: float = 0.0, by_rank: bool = False
    ) -> Demand:
        """Give Zipf's law over ``values`` keys, rank r in proportion to 1/r^exponent.

        Hot keys lie on pages drawn at random (always the same), or, if the master is sorted
        ``by_rank`` as the X-HYBRIDJOIN papers assume, side by side.
        """
        zipf = Zipf(values, exponent)
        placed = min(values, _MOST_PLACED, _PLACED * pages)
        ranks = np.arange(1, placed + 1)
        ends = np.unique(np.rint(np.geomspace(placed, values, _TAIL_GROUPS + 1)).astype(np.int64))
        middles = np.sqrt(ends[:-1].astype(np.float64) * ends[1:]).astype(np.int64) + 1
        size = np.concatenate([np.ones(placed), np.diff(ends).astype(np.float64)])
        share = np.concatenate([zipf.probability(ranks), zipf.probability(middles)])
        share[placed:] *= _scale(size, share, placed)
        page = (ranks - 1) * pages // values if by_rank else _scattered(placed, pages)
        return cls(size, share, page.astype(np.int32), pages, absent)

    def __post_init__(self) -> None:
        if not 0 <= self.absent < 1:
            msg = f"absent={self.absent!r} is not possible; give a share from 0 to below 1"
            raise OptionError(msg)

    @property
    def values(self) -> float:
        """How many keys there are."""
        return float(self.size.sum())

    @cached_property
    def _until(self) -> tuple[Floats, Floats]:
        """Keys, and the share of rows, up to the end of each group."""
        zero = np.zeros(1)
        keys = np.concatenate([zero, np.cumsum(self.size)])
        return keys, np.concatenate([zero, np.cumsum(self.size * self.share)])

    @cached_property
    def classes(self) -> tuple[Floats, Floats]:
        """Keys in few classes, sizes and shares of one key, for formulas over all of them."""
        ends = np.unique(np.geomspace(1, len(self.size), _CLASSES).astype(np.int64))
        starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
        size = np.add.reduceat(self.size, starts)
        return size, np.add.reduceat(self.size * self.share, starts) / size

    def hit(self, keys: float) -> float:
        """Give the share of matching rows that so many of the hottest keys answer."""
        return float(np.interp(keys, *self._until))

    def keys_of(self, hit: float) -> float:
        """Give how many of the hottest keys answer such a share of matching rows."""
        keys, share = self._until
        return float(np.interp(hit, share, keys))

    def page_shares(self, without: float = 0.0) -> Floats:
        """Give the share of matching rows for each page, without the hottest keys' rows."""
        count = len(self.page)
        left = np.clip(np.arange(1, count + 1) - without, 0.0, 1.0)  # of each key
        placed = np.bincount(self.page, left * self.share[:count], minlength=self.pages)
        rest = 1.0 - self.hit(max(without, count))
        return np.asarray(placed + rest / self.pages, dtype=np.float64)


def _scale(size: Floats, share: Floats, placed: int) -> float:
    """Give the factor that makes a tail, whose groups have the share of their middle, add up."""
    tail = float((size[placed:] * share[placed:]).sum())
    return (1 - float(share[:placed].sum())) / tail if tail else 1.0


def _scattered(keys: int, pages: int) -> npt.NDArray[np.int64]:
    """Give pages at random, the same for the same numbers."""
    return np.random.default_rng(0).integers(0, pages, keys)
