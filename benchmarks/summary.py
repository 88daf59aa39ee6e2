"""What records say: medians, spreads and ratios, as pure functions of their content."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.cost.spread import Spread, ratio, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["LOST", "Versus", "candidate", "quantile", "thousands", "versus"]

LOST = 0.97
"""Below this share of the best other, a cell is lost."""


class Versus(NamedTuple):
    """One algorithm against the best of the others in a cell."""

    rival: str
    ratio: Spread

    @property
    def lost(self) -> bool:
        """Whether the rival is ahead by more than may be noise."""
        return self.ratio.middle < LOST


def quantile(values: Iterable[float], share: float) -> float:
    """Give the least value that so many are not above.

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0, 9.0], 0.5), quantile([3.0, 1.0, 2.0, 9.0], 0.9)
    (2.0, 9.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def thousands(samples: Sequence[float]) -> str:
    """Give the middle sample and the range of all, in thousands.

    Examples
    --------
    >>> thousands([1_200_000, 1_000_000, 1_300_000])
    '1,200 (1,000–1,300)'
    """
    middle, least, most = (f"{value / 1e3:,.0f}" for value in spread(samples))
    return f"{middle} ({least}–{most})"


def candidate(names: Iterable[str]) -> str:
    """Give the algorithm that is compared with all others: ours, or the default without it."""
    return "adaptive" if "adaptive" in set(names) else "cachejoin"


def versus(cell: Mapping[str, Any], name: str) -> Versus | None:
    """Compare an algorithm with the one of the others that has the best median in a cell."""
    rates = cell["rates"]
    others = [other for other in rates if other != name]
    if name not in rates or not others:
        return None
    rival = max(others, key=lambda other: statistics.median(rates[other]["samples"]))
    return Versus(rival, ratio(rates[name]["samples"], rates[rival]["samples"]))
