"""Zipf's law as the papers use it: sums of 1/rank^exponent, shares of ranks and of pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from papers.equations.symbols import Sizes

Floats = NDArray[np.float64]


_HEAD = 64  # ranks that are summed one by one
_GROUPS = 192


@cache
def _head(exponent: float) -> Floats:
    return np.cumsum(np.arange(_HEAD + 1.0).clip(1) ** -exponent) - 1.0


def harmonic(k: ArrayLike, exponent: float = 1.0) -> Floats:
    """Return the sum of 1/x^exponent for x from 1 to k, between whole k as smoothly as can be.

    For exponent 1 this is Tuned X-HYBRIDJOIN's ln k + γ + 1/2k (before equation 4), and better for
    small k: the first ranks are summed, the others by Euler and Maclaurin.

    Examples
    --------
    >>> harmonic([0, 1, 2, 1000]).round(4).tolist()
    [0.0, 1.0, 1.5, 7.4855]
    >>> round(np.log(1000) + 0.5772156649 + 1 / 2000, 4)
    np.float64(7.4855)
    """
    x = np.asarray(k, np.float64)
    head = _head(exponent)
    far = np.maximum(x, _HEAD)
    e = 1.0 - exponent
    area = np.log(far / _HEAD) if abs(e) < 1e-9 else (far**e - _HEAD**e) / e
    ends = (far**-exponent - _HEAD**-exponent) / 2
    curve = exponent * (far ** (e - 2) - _HEAD ** (e - 2)) / 12
    sums = head[-1] + area + ends - curve
    near = np.interp(x, np.arange(_HEAD + 1.0), head)
    return np.asarray(np.where(x <= _HEAD, near, sums))


def hit(tuples: float, sizes: Sizes) -> float:
    """Return the share of stream tuples that so many of the hottest tuples of R answer (p_N).

    Examples
    --------
    >>> round(hit(500, Sizes(r_t=2_000_000, v_p=60_000)), 4)
    0.4503
    """
    values = min(tuples, sizes.r_t) / sizes.m
    sums = harmonic([values, sizes.values], sizes.exponent)
    return float((1 - sizes.absent) * sums[0] / sums[1])


@dataclass(frozen=True, eq=False)
class Pages:
    """Pages of R in groups: the share of all stream tuples that a page has, and how many such."""

    share: Floats
    count: Floats

    @property
    def total(self) -> float:
        """The share of stream tuples that have their match on any of these pages."""
        return float(self.share @ self.count)


def pages_by_rank(first: float, width: float, sizes: Sizes) -> Pages:
    """Cut R, sorted by access frequency, into pages of ``width`` tuples after the ``first`` ones.

    Examples
    --------
    >>> pages = pages_by_rank(500, 500, Sizes(r_t=2_000_000, v_p=60_000))
    >>> float(pages.count.sum()), round(pages.total, 4)
    (3999.0, 0.5497)
    """
    n = max((sizes.r_t - first) / width, 1e-9)
    edges = np.concatenate([np.arange(min(n, 16.0)), np.geomspace(min(n, 16.0), n, _GROUPS)])
    edges = np.unique(np.minimum(edges, n))
    below = harmonic((first + edges * width) / sizes.m, sizes.exponent)
    whole = float(harmonic(sizes.values, sizes.exponent))
    count = np.diff(edges)
    return Pages((1 - sizes.absent) * np.diff(below) / whole / count, count)


def pages_evenly(first: float, sizes: Sizes) -> Pages:
    """Return R's pages in the order of keys, without the rows that the ``first`` tuples answer.

    Examples
    --------
    >>> pages = pages_evenly(0, Sizes(r_t=1_000_000, v_p=12_000, absent=0.1))
    >>> pages.count.tolist(), pages.share.round(7).tolist()
    ([10000.0], [9e-05])
    """
    rest = max(0.0, 1 - sizes.absent - hit(first, sizes))
    return Pages(np.array([rest / sizes.n_r]), np.array([sizes.n_r]))
