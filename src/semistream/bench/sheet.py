"""A table of results: what is in it, not how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.bench.summary import spread

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Sheet", "thousands"]


@dataclass(frozen=True)
class Sheet:
    """A table: its title, heads and rows of text, and a note below it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def thousands(samples: Sequence[float]) -> str:
    """Give the middle sample and the range of all, in thousands.

    Examples
    --------
    >>> thousands([1_200_000, 1_000_000, 1_300_000])
    '1,200 (1,000–1,300)'
    """
    middle, least, most = (f"{value / 1e3:,.0f}" for value in spread(samples))
    return f"{middle} ({least}–{most})"
