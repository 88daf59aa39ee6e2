"""Models of joins that bring no pages: all of the master lies in memory, ours or the system's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.loop import Loop

if TYPE_CHECKING:
    from semistream.cost.models.base import Setting

__all__ = ["at_once", "resident"]


def resident(s: Setting) -> Loop:
    """Every row is answered from the budget's memory."""
    return _all_held(s, s.component("cache"))


def at_once(s: Setting) -> Loop:
    """Every row is looked up in mapped pages (`adaptive`), if the operating system holds them."""
    return _all_held(s, s.task.spec.files.manifest.pages_bytes)


def _all_held(s: Setting, held: float) -> Loop:
    return Loop(
        w_S=0.0,
        w_N=s.matching,
        w_F=s.demand.absent,
        pages=0.0,
        reads=0.0,
        output=s.duplicates,
        cache_bytes=held,
        keys=s.demand.values,
    )
