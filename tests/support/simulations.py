"""Simulations of planned joins, in short."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from semistream.planning import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 4_000  # of a slice: predictions are some 10 % off


@contextmanager
def short_simulations() -> Iterator[None]:
    """Simulate few rows: for what has to have a prediction, whatever it says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "_MOST_SLICE", ROWS)
        patch.setattr(simulate, "_SLICES", 1)
        yield
