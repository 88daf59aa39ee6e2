"""Samples: medians, ranges, quantiles and ratios, and how they are written."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """The median of samples, and their range."""

    middle: float
    least: float
    most: float

    def show(self, form: str = ".2f", unit: str = "") -> str:
        """Write the median and the range.

        Examples
        --------
        >>> spread([3, 1, 8]).show(".1f", "×")
        '3.0× (1.0–8.0)'
        """
        return f"{self.middle:{form}}{unit} ({self.least:{form}}–{self.most:{form}})"


def spread(samples: Iterable[float]) -> Spread:
    """Return the median and the range."""
    ordered = sorted(samples)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1])


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the ratio round by round: both sides of each were measured side by side.

    Examples
    --------
    >>> ratio([2, 6, 4], [1, 2, 4])
    Spread(middle=2.0, least=1.0, most=3.0)
    """
    return spread(a / b for a, b in zip(mine, theirs, strict=True))


def quantile(values: Iterable[float], fraction: float) -> float:
    """Return the least value that at least this fraction of the values does not exceed.

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0, 9.0], 0.5), quantile([3.0, 1.0, 2.0, 9.0], 0.9)
    (2.0, 9.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def thousands(samples: Iterable[float]) -> str:
    """Write the median and the range in thousands.

    Examples
    --------
    >>> thousands([1_200_000, 1_000_000, 1_300_000])
    '1,200 (1,000–1,300)'
    """
    return spread(sample / 1e3 for sample in samples).show(",.0f")


def rounded(value: float) -> int:
    """Keep four digits: no sample is more exact than that.

    Examples
    --------
    >>> rounded(1234567.8), rounded(17.2)
    (1235000, 17)
    """
    return int(float(f"{value:.4g}"))
