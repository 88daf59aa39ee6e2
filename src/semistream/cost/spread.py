"""Medians, ranges and ratios of samples."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Spread", "ratio", "spread"]


class Spread(NamedTuple):
    """The median of samples, and their range."""

    middle: float
    least: float
    most: float


def spread(samples: Iterable[float]) -> Spread:
    """Return the median and the range.

    Examples
    --------
    >>> spread([3, 1, 8])
    Spread(middle=3, least=1, most=8)
    """
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
