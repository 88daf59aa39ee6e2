"""Rates over budgets: what each budget buys, and which one to give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Asked", "Curve", "Point", "Predictor", "draw_curve"]

_POINTS = 7
_NEAR_BEST = 0.9  # of the highest rate: memory beyond buys little
_FINER = 1.1  # budgets of this ratio are alike: the least for a rate is found to that
_SHOWN = 1 << 10


@dataclass(frozen=True)
class Point:
    """What a budget buys."""

    memory: int
    rate: float
    """Stream rows a second."""
    from_memory: float
    """The share of rows answered without a page from the disk."""
    pages: float
    """Pages read a second."""
    bytes: float
    """Bytes read a second."""
    components: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each part of the memory."""
    way: str = ""
    """How rows are answered."""


@dataclass(frozen=True)
class Asked:
    """The question: a budget, a rate, or neither."""

    memory: int | None = None
    rate: float | None = None


class Predictor(Protocol):
    """Predicts one kind of join for any budget."""

    @property
    def name(self) -> str:
        """What is predicted."""

    @property
    def least(self) -> int:
        """The least bytes that the join accepts."""

    @property
    def whole(self) -> int:
        """Bytes from which on memory buys nothing more."""

    def predict(self, memory: int) -> Point:
        """Predict what a budget buys; raise `BudgetError` if it is too small."""


@dataclass(frozen=True)
class Curve:
    """The rates of one kind of join over budgets, and the one to give."""

    name: str
    least: int
    points: tuple[Point, ...]
    chosen: Point | None
    """None where no budget gives the rate that was asked for."""

    @property
    def best(self) -> Point:
        """The point with the highest rate."""
        return max(self.points, key=lambda point: point.rate)


def draw_curve(predictor: Predictor, asked: Asked) -> Curve:
    """Predict rates over budgets, and choose one: as asked, or the least that is near the best.

    Raise `BudgetError` where the budget that was asked for is less than the join accepts.
    """
    least = _shown(predictor.least)
    if asked.memory is not None and asked.memory < predictor.least:
        predictor.predict(asked.memory)  # raises, and says why
    sizes = {_shown(size) for size in np.geomspace(least, max(least, predictor.whole), _POINTS)}
    if asked.memory is not None:
        sizes.add(asked.memory)
    points = {size: predictor.predict(size) for size in sorted(sizes)}
    chosen = _choose(predictor, points, asked)
    if chosen is not None:
        points[chosen.memory] = chosen
    return Curve(predictor.name, least, tuple(points[size] for size in sorted(points)), chosen)


def _choose(predictor: Predictor, points: dict[int, Point], asked: Asked) -> Point | None:
    if asked.memory is not None:
        return points[asked.memory]
    best = max(point.rate for point in points.values())
    wanted = _NEAR_BEST * best if asked.rate is None else asked.rate
    high = next((size for size in sorted(points) if points[size].rate >= wanted), None)
    if high is None:
        return None
    low = max((size for size in points if size < high), default=high)
    found = points[high]
    while high > _FINER * low:
        middle = _shown((low * high) ** 0.5)
        point = predictor.predict(middle)
        if point.rate >= wanted:
            high, found = middle, point
        else:
            low = middle
    return found


def _shown(size: float) -> int:
    """Round a budget up to whole kilobytes, as it is shown and typed."""
    return -(-int(np.ceil(size)) // _SHOWN) * _SHOWN
