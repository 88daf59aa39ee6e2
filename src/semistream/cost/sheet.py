"""A table of results: what is in it, not how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Sheet"]


@dataclass(frozen=True)
class Sheet:
    """A table: its title, heads and rows of text, and a note below it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
