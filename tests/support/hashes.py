"""Hashes that collide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.arrow import keys

if TYPE_CHECKING:
    from collections.abc import Callable


def colliding(mask: int) -> Callable[..., Any]:
    """Return a hash function of which only these bits differ."""
    hashes = keys._hashes
    return lambda *columns: hashes(*columns) & np.int64(mask)
