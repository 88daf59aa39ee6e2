"""The profile of a sample, how many keys were seen once, twice, …, and what a law expects of it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from semistream.workloads import Zipf

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["at_least", "count_groups", "keys_from", "zipf_rates"]

_SINGLE_COUNTS = 16  # above, counts are grouped, and Poisson's law is approximated
_WIDTH = 1.1  # of a group of counts
_SINGLE_RANKS, _RANK_GROUPS = 256, 256


def count_groups(most: int) -> Ints:
    """Give the least count of each group of counts: one by one up to 16, then ever wider ones.

    Examples
    --------
    >>> count_groups(25).tolist()[-5:]
    [16, 18, 20, 22, 24]
    """
    wide = _SINGLE_COUNTS * _WIDTH ** np.arange(1, 2 + np.log(most) / np.log(_WIDTH))
    least = np.concatenate([np.arange(1, _SINGLE_COUNTS + 1), np.ceil(wide)]).astype(np.int64)
    return np.unique(least[least <= most])


def keys_from(counts: Ints, least: Ints) -> Floats:
    """Give how many keys were seen at least so often.

    Examples
    --------
    >>> keys_from(np.array([7, 1, 1, 2]), np.array([1, 2, 3])).tolist()
    [4.0, 2.0, 1.0]
    """
    return (len(counts) - np.searchsorted(np.sort(counts), least)).astype(np.float64)


def at_least(least: Ints, rates: Floats) -> Floats:
    """Give the chances that a key of each rate (across) is seen at least so often (down).

    Parameters
    ----------
    least
        What `count_groups` gave, or its beginning.
    rates
        How often a key is expected; it is seen that often on average, by Poisson's law.

    Examples
    --------
    >>> at_least(np.array([1, 2]), np.array([0.1, 3.0])).round(3).tolist()
    [[0.095, 0.95], [0.005, 0.801]]
    """
    few = int(np.searchsorted(least, _SINGLE_COUNTS, side="right"))
    term, below, chances = np.exp(-rates), np.zeros_like(rates), []
    for count in range(1, few + 1):
        below = below + term
        chances.append(1 - below)
        term = term * rates / count
    many = least[few:, None].astype(np.float64)
    # Wilson and Hilferty 1931: the cube root of a gamma variate is nearly normal.
    z = 3 * np.sqrt(many) * (np.cbrt(rates / many) - 1 + 1 / (9 * many))
    return np.vstack([*chances, _normal(z)])


def _normal(z: Floats) -> Floats:
    """Give the normal distribution function, to within 0.00014 (Bowling and others 2009)."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.7988 * z + 0.035283 * z**3))


def zipf_rates(values: int, exponent: float, rows: int) -> tuple[Floats, Floats]:
    """Give groups of keys under Zipf's law: how many, and how often each comes in so many rows.

    Examples
    --------
    >>> size, rates = zipf_rates(values=1_000_000, exponent=1.0, rows=5000)
    >>> len(size) < 600, round(size.sum()), round(size @ rates)
    (True, 1000000, 5000)
    """
    size, middle = _rank_groups(values)
    share = Zipf(values, exponent).probability(middle)
    wide = size > 1
    if wide.any():  # the share of a group's middle is not quite the mean of its keys'
        share[wide] *= (1 - share[~wide].sum()) / (size[wide] @ share[wide])
    return size, share * rows


@cache
def _rank_groups(values: int) -> tuple[Floats, Ints]:
    """Give groups of ranks: how many are in each, and the middle one."""
    single = min(values, _SINGLE_RANKS)
    wide = np.unique(np.geomspace(single, values, _RANK_GROUPS + 1).astype(np.int64))
    ends = np.concatenate([np.arange(single), wide])
    middle = np.sqrt((ends[:-1] + 1.0) * ends[1:]).astype(np.int64)
    return np.diff(ends).astype(np.float64), middle
