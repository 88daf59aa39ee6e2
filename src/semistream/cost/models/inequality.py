"""The split between cache and window that the cache inequality finds (MOIJ's Theorem 2)."""

from __future__ import annotations

from itertools import count, islice
from math import exp, floor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from semistream.cost.models.base import Setting

    Floats = npt.NDArray[np.float64]

__all__ = ["STEEP", "Split", "at_least", "divide", "tails"]

STEEP = 512
"""From here on Poisson's law is taken for a step at its mean."""
_MOST = 700.0  # means above it are alike to less than that, and its exponential is not zero
_ROUNDS = 24


class Split(NamedTuple):
    """How cache and window divide their memory."""

    keys: float
    """Join values in the cache."""
    effective: float
    """The hottest keys that would answer as much."""
    cache: float
    window: float
    entering: float
    """Join values that enter the cache, and leave it, for a stream row."""

    def judged(self, rows: float) -> float:
        """Give the chance that a value enters the cache of a page that answers so many rows."""
        return 1 - exp(-self.entering * rows)


def divide(s: Setting, length: Callable[[float, float], float]) -> Split:
    """Find the split at which the inequality holds for the values in the cache, and for no other.

    A value with share p has n = p·T rows in a queue of T stream rows, in the mean; it is cached if
    m·v_R < n·v_S. Theorem 2 has the mean decide; but what is compared is what was counted, and
    chance lets some values in that are rarer, and others out. A value that is judged once in every
    queue is in the cache with the chance that Poisson's law gives for such an n. ``length`` gives T
    for a number of cached keys and a window's bytes; it is the larger the smaller the cache, so the
    split is found by bisection. As many values enter as leave: those that are in by chance and will
    be out when they are judged again.
    """
    divided, value = s.component("window"), s.cached_value
    largest = (divided - int(s.plan.settings["least_window"])) / value
    low, high = 0.0, min(largest, s.demand.values)
    chance, sizes, queue = np.zeros(0), np.zeros(0), 1.0
    for _ in range(_ROUNDS):
        keys = (low + high) / 2
        queue = length(keys, divided - keys * value)
        sizes, chance = _held(s, queue)
        low, high = (keys, high) if float((sizes * chance).sum()) > keys else (low, keys)
    hits = float((sizes * chance * s.demand.classes[1]).sum())
    cache, moving = low * value, float((sizes * chance * (1 - chance)).sum())
    entering = moving / queue if queue > 0 else 0.0  # nobody waits where the cache has all
    return Split(low, s.demand.keys_of(hits), cache, divided - cache, entering)


def _held(s: Setting, queue: float) -> tuple[Floats, Floats]:
    """Give the sizes of the classes of keys, and the chance that a key of each is cached."""
    sizes, shares = s.demand.classes
    least = floor(s.cached_value / s.task.window_row) + 1
    return sizes, at_least(least, s.matching * shares * queue)


def at_least(least: int, mean: Floats) -> Floats:
    """Give the chance that Poisson's law gives so many or more.

    Examples
    --------
    >>> at_least(2, np.array([0.0, 1.0, 50.0])).round(4).tolist()
    [0.0, 0.2642, 1.0]
    >>> at_least(3_000, np.array([2_000.0, 4_000.0])).tolist()
    [0.0, 1.0]
    """
    if least >= STEEP:
        return np.asarray(mean >= least, dtype=np.float64)
    return next(islice(tails(mean), least, None))


def tails(mean: Floats) -> Iterator[Floats]:
    """Give the chances of none or more, one or more, and so on: good for less than `STEEP`."""
    mean = np.minimum(mean, _MOST)
    term, below = np.exp(-mean), np.zeros_like(mean)
    for number in count(1):
        yield np.clip(1.0 - below, 0.0, 1.0)
        below += term
        term = term * mean / number
