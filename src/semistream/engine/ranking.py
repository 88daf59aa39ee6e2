"""Which join values stay where not all have room: those of most worth, once for all caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MOST_COUNTED", "best_that_fit", "keep_best", "value_starts"]

MOST_COUNTED = 254
"""The most that a threshold may ask for: a sketch counts to 255, so the hottest always enter."""


def value_starts(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first row of each join value, of rows whose equal codes are neighbours.

    Examples
    --------
    >>> value_starts(np.array([7, 7, 3, 9, 9])).tolist()
    [0, 2, 3]
    """
    starts = np.ones(len(codes), dtype=np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=starts[1:])
    return np.flatnonzero(starts)


def best_that_fit(
    worth: npt.NDArray[Any], sizes: npt.NDArray[Any], room: float
) -> npt.NDArray[np.int64]:
    """Return the entries of most worth, best first, that ``room`` holds; of equals the first.

    Examples
    --------
    >>> best_that_fit(np.array([1, 9, 5, 5]), np.array([1, 4, 2, 2]), room=7).tolist()
    [1, 2]
    """
    order = np.argsort(-worth, kind="stable")
    return order[np.cumsum(sizes[order], dtype=np.float64) <= room]


def keep_best(
    worth: npt.NDArray[Any], sizes: npt.NDArray[Any], room: float
) -> tuple[npt.NDArray[np.bool_], float]:
    """Return which entries of most worth ``room`` holds, and the worth of the best that goes.

    Examples
    --------
    >>> stays, lost = keep_best(np.array([1, 9, 5, 5]), np.array([1, 4, 2, 2]), room=7)
    >>> stays.tolist(), lost
    ([False, True, True, False], 5.0)
    """
    stays = np.zeros(len(worth), dtype=np.bool_)
    stays[best_that_fit(worth, sizes, room)] = True
    return stays, float(worth[~stays].max(initial=0.0))
