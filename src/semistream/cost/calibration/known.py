"""Factors of the models' counts, as a thorough calibration found them.

They follow from the implementation and the papers' workload, not from the machine: the same code
counts the same pages everywhere. So a quick calibration, whose runs end before caches have
settled, takes them from here; a thorough one measures them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from semistream.cost.calibration.runs import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KNOWN"]

KNOWN: Mapping[str, Counts] = MappingProxyType(
    {
        "partition-join": Counts(fill=0.98, cached=0.85),
        "ssij": Counts(fill=0.98),
        "derakhshan": Counts(fill=0.88, cached=0.95),
        "hybridjoin": Counts(fill=0.98),
        "x-hybridjoin": Counts(fill=0.98),
        "optimised-x-hybridjoin": Counts(fill=0.97),
        "tuned-x-hybridjoin": Counts(fill=0.99),
        "cachejoin": Counts(fill=0.95, cached=0.53),
        "pcsrj": Counts(fill=0.97, cached=0.55),
        "moij": Counts(fill=0.97),
        "adaptive": Counts(fill=1.02, cached=0.55),
    }
)
"""By algorithm; others are as their models say."""
