"""Confidence intervals of means."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Interval", "interval"]

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
    """Give the mean of samples with its 95 % confidence interval; None for fewer than two.

    Examples
    --------
    >>> print(interval([1.0, 2.0, 3.0]))
    95 %: -0.484 to 4.48
    >>> interval([1.0])
    """
    if len(samples) < 2:
        return None
    mean = statistics.fmean(samples)
    degrees = min(len(samples) - 1, len(_T))
    half = _T[degrees - 1] * statistics.stdev(samples) / math.sqrt(len(samples))
    return Interval(mean, mean - half, mean + half)
