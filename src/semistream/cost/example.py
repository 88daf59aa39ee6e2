"""Unit costs that a machine might have: for examples and tests, which cannot wait for real ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from semistream.algorithms import algorithms
from semistream.cost.profile import Profile
from semistream.cost.unit_costs import Curve, Fit, RowCost, UnitCosts
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["example_profile"]

_SIZES = (8192.0, 131072.0, 1048576.0)
_FITS = {"adaptive": Fit(step=1e-5), "pcsrj": Fit(step=8e-5, rows=3.0)}


def _runs() -> Iterator[tuple[str, str]]:
    return itertools.product(algorithms(), ("direct", "mapped"))


def example_profile() -> Profile:
    """Give a profile that was never measured, as if it were of this machine.

    Examples
    --------
    >>> example_profile().doubts()
    []
    """
    mapped = Curve(_SIZES[:2], (1e-5, 1.2e-5))
    costs = UnitCosts(
        c_io={
            "direct": Curve(_SIZES, (9e-5, 1.5e-4, 7e-4)),
            "direct, 1 ahead": Curve(_SIZES, (6e-5, 1.2e-4, 6e-4)),
            "direct, 3 ahead": Curve(_SIZES, (4e-5, 1e-4, 6e-4)),
            "mapped": mapped,
            "mapped, 1 ahead": mapped,
            "mapped, 3 ahead": mapped,
        },
        c_S=RowCost(6e-8),
        c_A=RowCost(3e-8),
        c_E=RowCost(1e-8),
        c_H=RowCost(4e-8),
        c_O=RowCost(8e-8, 2e-8, 1e-9),
        far=Curve((1e6, 2e8), (1.0, 1.5)),
        standards={"direct": 1.5e-4, "direct, 1 ahead": 1.2e-4, "direct, 3 ahead": 1e-4},
        fits={f"{name} {read}": _FITS.get(name, Fit(step=8e-5)) for name, read in _runs()},
    )
    return Profile(costs, describe() | {"busiest": 0.0}, quick=True)
