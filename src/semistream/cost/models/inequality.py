"""The split between cache and window that the cache inequality finds (MOIJ's Theorem 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.cost.models.base import Setting

__all__ = ["Split", "divide", "keys_above"]


class Split(NamedTuple):
    """How cache and window divide their memory."""

    keys: float
    """Join values in the cache."""
    effective: float
    """The hottest keys that would answer as much."""
    cache: float
    window: float


def keys_above(s: Setting, share: float) -> float:
    """Give how many keys a larger share of the stream asks for."""
    size, shares = s.demand.classes
    return float(size[s.matching * shares > share].sum())


def divide(s: Setting, length: Callable[[float, float], float]) -> Split:
    """Find the split at which the inequality holds for the values in the cache, and for no other.

    A value with share p has n = p·T rows in a queue of T stream rows; it is cached if
    m·v_R < n·v_S, so if p > m·v_R / (v_S·T). ``length`` gives T for a number of cached keys and a
    window's bytes; it is the larger the smaller the cache, so the split is found by bisection.
    """
    divided = s.component("window")
    largest = divided - int(s.plan.settings["least_window"])
    low, high = 0.0, min(largest / s.cached_value, s.demand.values)
    for _ in range(24):
        keys = (low + high) / 2
        window = divided - keys * s.cached_value
        queue = length(keys * s.fit.cached, window)
        least = s.cached_value / (s.task.window_row * max(queue, 1e-9))
        low, high = (keys, high) if keys_above(s, least) > keys else (low, keys)
    cache = low * s.cached_value
    return Split(low, low * s.fit.cached, cache, divided - cache)
