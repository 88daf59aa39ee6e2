"""Least squares with no part below zero: no operation gives time back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["non_negative"]


def non_negative(terms: Floats, wanted: Floats) -> Floats:
    """Give what to multiply each column of ``terms`` by to come nearest to ``wanted``.

    A part that would be negative is left out, the most negative one first.

    Examples
    --------
    >>> terms = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> non_negative(terms, np.array([3.0, 2.0, 1.0])).round(3).tolist()
    [2.0, 0.0]
    """
    used = np.asarray(terms.any(axis=0))
    found = np.zeros(terms.shape[1])
    while used.any():
        found[:] = 0.0
        found[used] = np.linalg.lstsq(terms[:, used], wanted, rcond=None)[0]
        if (found >= 0).all():
            break
        used[int(np.argmin(found))] = False
        found[:] = 0.0
    return found
