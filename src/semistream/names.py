"""Names of columns that are added on the way, and must not be anyone else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RESERVED", "reserved", "unused"]

RESERVED = "__semistream"
"""How the names begin of columns that a pipeline adds: rows keep them from one step to another."""


def unused(name: str, taken: Iterable[str]) -> str:
    """Return ``name``, followed by underscores until it differs from all names that are taken.

    Case does not count, as in Spark. The same columns always give the same name: a query that is
    started again has the same plan.

    Examples
    --------
    >>> unused("__row", ["id", "__ROW"])
    '__row_'
    """
    known = {other.casefold() for other in taken}
    while name.casefold() in known:
        name += "_"
    return name


def reserved(names: Iterable[str]) -> list[str]:
    """Return those names that begin as the pipeline's own do.

    Examples
    --------
    >>> reserved(["id", "__Semistream_time"])
    ['__Semistream_time']
    """
    return [name for name in names if name.casefold().startswith(RESERVED)]
