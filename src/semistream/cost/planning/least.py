"""The least memory for a rate: MOIJ's λ ≤ μ (its equations 4 and 5), for every algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.cost.planning.question import Question

__all__ = ["Least", "budgets", "least_memory"]

_STEP = 2.0
_EXACT = 1.005
_SPARE = (1.2, 1.15, 1.1, 1.05)


@dataclass(frozen=True)
class Least:
    """What an algorithm needs for a rate."""

    memory: int | None
    """The least budget; None where no budget gives the rate."""
    most: float
    """The most rows a second that was found on the way there."""


def budgets(question: Question, name: str) -> Iterator[int]:
    """Give budgets from the least that works to one that holds the master, doubling."""
    low = question.least_budget(name)
    high = max(low, question.whole)
    steps = int(np.ceil(np.log(high / low) / np.log(_STEP)))
    yield from (int(size) for size in np.geomspace(low, high, steps + 1)[:-1])
    yield high


def least_memory(question: Question, name: str, rate: float) -> Least:
    """Find the least memory with which an algorithm is predicted to answer so many rows a second.

    More memory is not always faster: a split moves in steps, a further page of the disk buffer may
    leave little of a small window, and a large one misses the processor's caches. So the answer is
    the least budget that suffices as those do that are up to a fifth larger: who spends a little
    more is not worse off. Budgets are doubled, beginning with the least that works; between the
    first that suffices and the one before it the least is found by bisection, to half a percent.
    What happens beyond that fifth, or within a doubling that does not suffice, is not looked at.
    """
    low, most = 0, 0.0
    for high in budgets(question, name):
        reached = question.rate(name, high)
        most = max(most, reached)
        while reached >= rate and low < high:
            least = _between(question, name, rate, low, high)
            low = _dip(question, name, rate, least)
            if not low:
                return Least(least, reached)
        low = max(low, high)
    return Least(None, most)


def _between(question: Question, name: str, rate: float, low: int, high: int) -> int:
    while low and high > _EXACT * low:
        middle = int((low * high) ** 0.5)
        low, high = (low, middle) if question.rate(name, middle) >= rate else (middle, high)
    return high


def _dip(question: Question, name: str, rate: float, least: int) -> int:
    """Give a somewhat larger budget that does not suffice, 0 where all do."""
    larger = (int(least * more) for more in _SPARE)
    return next((size for size in larger if question.rate(name, size) < rate), 0)
