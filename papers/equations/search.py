"""Searches over one size: the best one, and the least that is enough."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt

from semistream.errors import OptionError

_GOLDEN = (sqrt(5) - 1) / 2


def best(rate: Callable[[float], float], low: float, high: float, points: int = 24) -> float:
    """Return the x from ``low`` to ``high`` at which ``rate`` is highest.

    A grid in even ratios first, so that a second, lower top does no harm; then golden section
    between the neighbours of the best point.

    Examples
    --------
    >>> round(best(lambda x: -((x - 3) ** 2), 0.1, 100), 3)
    3.0
    """
    step = log(high / low) / max(1, points - 1)
    grid = [low * exp(step * i) for i in range(points)]
    top = max(range(points), key=lambda i: rate(grid[i]))
    a, b = grid[max(0, top - 1)], grid[min(points - 1, top + 1)]
    x, y = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_x, at_y = rate(x), rate(y)
    while b - a > 1e-4 * b:
        if at_x >= at_y:
            b, y, at_y = y, x, at_x
            x = b - _GOLDEN * (b - a)
            at_x = rate(x)
        else:
            a, x, at_x = x, y, at_y
            y = a + _GOLDEN * (b - a)
            at_y = rate(y)
    return (a + b) / 2


def least(rate: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return the least x at which a ``rate`` that only grows is as high as ``wanted``.

    Examples
    --------
    >>> round(least(lambda x: x * x, 9, 1, 100), 4)
    3.0
    """
    if rate(high) < wanted:
        msg = f"a rate of {wanted:,.0f}/s is not reached: {high:,.0f} give {rate(high):,.0f}/s"
        raise OptionError(f"{msg}; ask for less, or allow more")
    while high / low > 1 + 1e-7:
        middle = sqrt(low * high)
        low, high = (low, middle) if rate(middle) >= wanted else (middle, high)
    return high
