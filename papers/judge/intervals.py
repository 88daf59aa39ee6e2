"""Confidence intervals of means, and of ratios of means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

# Student's t at 97.5 %, for 1 to 30 degrees of freedom; above that the next smaller is kept.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Interval(NamedTuple):
    """The mean of samples, and the interval in which it lies with 95 % confidence."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"95 %: {self.low:.3g} to {self.high:.3g}"


def interval(samples: Sequence[float]) -> Interval | None:
    """Return the mean of samples with its 95 % confidence interval; None for fewer than two.

    Examples
    --------
    >>> print(interval([1.0, 2.0, 3.0]))
    95 %: -0.484 to 4.48
    >>> interval([1.0])
    """
    if len(samples) < 2:
        return None
    mean, half = statistics.fmean(samples), _half(samples)
    return Interval(mean, mean - half, mean + half)


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """Return the ratio of the means of two sides that were sampled in turn, likewise.

    The mean of the ratios of single samples would be another number: a join that takes rows in
    by quarters of a window is fast in one slice and slow in the next.

    Examples
    --------
    >>> print(ratio_interval([(4.0, 1.0), (2.0, 3.0), (3.0, 2.0)]))
    95 %: -1.61 to 4.61
    >>> print(ratio_interval([(2.0, 1.0), (6.0, 3.0), (4.0, 2.0)]))  # noise that hit both alike
    95 %: 2 to 2
    """
    below = sum(b for _, b in pairs)
    if len(pairs) < 2 or not below:
        return None
    ratio = sum(a for a, _ in pairs) / below
    half = _half([a - ratio * b for a, b in pairs]) * len(pairs) / below
    return Interval(ratio, ratio - half, ratio + half)


def _half(samples: Sequence[float]) -> float:
    """Return half the width of the interval of a mean."""
    degrees = min(len(samples) - 1, len(_T))
    return _T[degrees - 1] * statistics.stdev(samples) / math.sqrt(len(samples))
