"""Model of a master that fits into the budget as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.loop import Loop

if TYPE_CHECKING:
    from semistream.cost.models.base import Setting

__all__ = ["resident"]


def resident(s: Setting) -> Loop:
    """Every row is answered from memory; no page is read."""
    return Loop(
        w_S=0.0,
        w_N=s.matching,
        w_F=s.demand.absent,
        pages=0.0,
        reads=0.0,
        output=s.duplicates,
        cache_bytes=s.component("cache"),
        keys=s.demand.values,
    )
