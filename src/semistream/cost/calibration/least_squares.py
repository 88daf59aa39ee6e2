"""Least squares with no part below zero: no operation gives time back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["non_negative"]

_AS_NEAR = 1e-12  # errors that differ by less, to what is wanted, are the same but for rounding


def non_negative(terms: Floats, wanted: Floats) -> Floats:
    """Give what to multiply each column of ``terms`` by to come nearest to ``wanted``.

    Every choice of parts is tried, for there are few: the nearest one without a negative part, and
    of those that are as near the one with most parts.

    Examples
    --------
    >>> terms = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> non_negative(terms, np.array([3.0, 2.0, 1.0])).round(3).tolist()
    [2.0, 0.0]
    """
    parts, nearest = np.flatnonzero(terms.any(axis=0)), float(wanted @ wanted)
    found = np.zeros(terms.shape[1])
    for count in range(len(parts), 0, -1):
        for some in map(list, itertools.combinations(parts, count)):
            values = np.linalg.lstsq(terms[:, some], wanted, rcond=None)[0]
            error = float(((terms[:, some] @ values - wanted) ** 2).sum())
            if (values >= 0).all() and error < nearest - _AS_NEAR * float(wanted @ wanted):
                nearest, found = error, np.zeros(terms.shape[1])
                found[some] = values
    return found
