"""How skewed a stream is: the Zipf law that a sample's counts speak for, if any does.

The usual fit takes the key seen most often for rank 1, the next for rank 2, and so on. In a sample
that is wrong: of equal keys some are seen more often by chance, so a uniform stream gets a skew.
Here ranks are not needed. A key whose rank is not known is seen j times with the chance
(1/V) Σ_r Poisson(j; n·p_r), so V times that many keys are expected to be seen j times, and the
exponent is chosen that makes the *profile* — how many keys were seen once, twice, … — most likely.
Keys that were not seen take part: they are seen no times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.sampling.multiplicity import at_least, count_groups, keys_from, zipf_rates
from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["LARGEST_MISFIT", "ZipfFit", "fit_zipf"]

LARGEST_MISFIT = 0.03
"""The largest misfit, chance apart, of a stream that is taken to follow Zipf's law."""

_STEEPEST = 4.0
_GRID, _REFINEMENTS = 21, 3  # in steps of 0.2, then of 0.02, then of 0.002
_HALVINGS = 4
_HEAD = 8  # keys seen most often, which are one group: few keys do not decide on the law of all
_STRAYS = 1e-3  # keys expected anywhere, so that one odd key does not decide either
_UNIFORM = 1.35  # a uniform stream's likelihood is as far from its best in one sample of twenty


@dataclass(frozen=True)
class ZipfFit:
    """The Zipf law nearest to a sample, and how near it is.

    Examples
    --------
    >>> ZipfFit(1.02, error=0.01, misfit=0.2, rows=10_000).holds
    False
    """

    exponent: float
    """The most likely one up to 4; 0 if the sample may as well come from a uniform stream."""
    error: float
    """Its standard error, if the law holds; few rows of many keys tell little."""
    misfit: float
    """How far the law errs on what the hottest keys answer, as a share of all rows.

    Take the keys seen at least j times in the sample: so many keys, which will answer that share of
    further rows. Under the law as many keys would answer another share. The misfit is the largest
    difference over all j: at 0.03 a cache of some size would answer three rows in a hundred more,
    or fewer, than the law says. The shares of further rows are found by leaving one row out
    (Good and Turing), so that keys which were seen often by chance do not count as hot.
    """
    rows: int
    """How many rows were counted."""

    @property
    def allowed(self) -> float:
        """The largest misfit with which the law holds: 0.03, and 1/√rows for chance."""
        return float(LARGEST_MISFIT + self.rows**-0.5)

    @property
    def holds(self) -> bool:
        """Whether the law is near enough to plan with."""
        return self.misfit <= self.allowed


def fit_zipf(counts: Ints, values: int) -> ZipfFit:
    """Fit Zipf's law over ``values`` keys to how often the keys of a sample were seen.

    Parameters
    ----------
    counts
        How often each key was seen, in any order; keys that were not seen may be left out.
    values
        How many keys there are, seen or not.

    Examples
    --------
    >>> from semistream.workloads import Zipf
    >>> keys = Zipf(10_000, exponent=0.8).sample(100_000, np.random.default_rng(1))
    >>> fit = fit_zipf(np.bincount(keys), values=10_000)
    >>> round(fit.exponent, 1), fit.holds
    (0.8, True)
    """
    counts = counts[counts > 0]
    if not 0 < len(counts) <= values:
        msg = f"{len(counts):,} keys were seen, of {values:,}; give at least 1 and at most all"
        raise OptionError(msg)
    sample = _Profile.of(counts, values)
    exponent = _highest(sample.likelihood, 0.0, _STEEPEST)
    if sample.likelihood(exponent) - sample.likelihood(0.0) < _UNIFORM:
        exponent = 0.0
    return ZipfFit(exponent, sample.error(exponent), sample.misfit(exponent), sample.rows)


@dataclass(frozen=True, eq=False)
class _Profile:
    """How many keys were seen how often."""

    values: int
    rows: int
    least: Ints
    """The least count of each group of counts."""
    keys: Floats
    """How many keys were seen at least so often."""
    shares: Floats
    """The share of rows of keys that were seen more often than that."""
    head: int
    """The group that has all counts above it, too, where the law is fitted."""

    @classmethod
    def of(cls, counts: Ints, values: int) -> _Profile:
        least, ordered = count_groups(int(counts.max())), np.sort(counts)
        until = np.concatenate([[0], np.cumsum(ordered)])
        rows, keys = int(until[-1]), keys_from(ordered, least)
        more = rows - until[np.searchsorted(ordered, least, side="right")]
        head = int((keys >= _HEAD).sum()) - 1
        return cls(values, rows, least, keys, more / rows, max(0, head))

    def likelihood(self, exponent: float) -> float:
        """Give the logarithm of the chance of this profile, but for a constant."""
        size, rates = zipf_rates(self.values, exponent, self.rows)
        until = self.head + 1
        seen = -np.diff(self.keys[:until], append=0.0)
        expected = -np.diff(at_least(self.least[:until], rates) @ size, append=0.0)
        expected = np.maximum(expected, 0.0) + _STRAYS
        return float(seen @ np.log(expected) - expected.sum())

    def error(self, exponent: float) -> float:
        """Give how far up the likelihood falls by 1/2, as it does one standard error away.

        Not from its bend: near 0 a stream is all but uniform, and there is none.
        """
        enough = self.likelihood(exponent) - 0.5
        near, far = 0.0, 0.005
        while self.likelihood(exponent + far) > enough and far < _STEEPEST:
            near, far = far, 2 * far
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            falls = self.likelihood(exponent + middle) <= enough
            near, far = (near, middle) if falls else (middle, far)
        return far

    def misfit(self, exponent: float) -> float:
        """Give the largest difference between the shares that so many keys answer."""
        size, rates = zipf_rates(self.values, exponent, self.rows)
        chances = at_least(self.least, rates)
        keys, shares = chances @ size, chances @ (size * rates) / self.rows
        keys, shares = np.append(self.values, keys), np.append(1.0, shares)
        expected = np.interp(self.keys, np.append(0.0, keys[::-1]), np.append(0.0, shares[::-1]))
        return float(np.abs(self.shares - expected).max())


def _highest(function: Callable[[float], float], low: float, high: float) -> float:
    """Give where a function is highest: on a grid, then on ever finer ones around its best."""
    for _ in range(_REFINEMENTS):
        grid = np.linspace(low, high, _GRID)
        best = int(np.argmax([function(float(at)) for at in grid]))
        low, high = float(grid[max(0, best - 1)]), float(grid[min(_GRID - 1, best + 1)])
    return float(grid[best])
