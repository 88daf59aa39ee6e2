"""Claims: what is asked of ours beside the others, and whether samples bear it out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.harness.samples import Spread, ratio

LOST = 0.97
"""Below this fraction of the best other, a cell is lost: the rest may be noise."""


class Versus(NamedTuple):
    """One algorithm against the best of the others in a cell."""

    rival: str
    ratio: Spread

    @property
    def lost(self) -> bool:
        """Whether the rival is ahead by more than may be noise."""
        return self.ratio.middle < LOST

    def __str__(self) -> str:
        return f"{'✗ ' if self.lost else ''}{self.ratio.show()} {self.rival}"


def candidate(names: Iterable[str]) -> str:
    """Return the algorithm that is compared with all others: ours, or the default without it."""
    return "adaptive" if "adaptive" in set(names) else "cachejoin"


def versus(rates: Mapping[str, Mapping[str, Any]], name: str) -> Versus | None:
    """Compare an algorithm with the one of the others that has the best median in a cell."""
    others = [other for other in rates if other != name]
    if name not in rates or not others:
        return None
    rival = max(others, key=lambda other: statistics.median(rates[other]["samples"]))
    return Versus(rival, ratio(rates[name]["samples"], rates[rival]["samples"]))


@dataclass(frozen=True)
class Claim:
    """What was asked, what was measured, and the verdict by the median."""

    what: str
    asked: str
    measured: str
    met: bool | None
    """None where the record cannot tell."""

    @classmethod
    def of_ratio(cls, what: str, asked: float, measured: Spread, note: str = "") -> Claim:
        """Ask for a ratio of at least so much."""
        return cls(
            what, f"{asked:g}×", f"{measured.show(unit='×')} {note}", measured.middle >= asked
        )

    @property
    def verdict(self) -> str:
        """The verdict as a mark."""
        return "–" if self.met is None else "✓" if self.met else "✗"
