"""Names of columns: those that are given, and those of columns that are added on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RESERVED", "check_text", "listed", "reserved", "unused"]

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


def listed(what: str, names: object) -> tuple[str, ...]:
    """Return a list of column names as it was given for ``what``; refuse anything else.

    Examples
    --------
    >>> listed("select", "price")
    Traceback (most recent call last):
    semistream.errors.OptionError: select='price' is one string; give a list of column names, ...
    """
    if isinstance(names, str):
        msg = f"{what}={names!r} is one string; give a list of column names, as {what}=[{names!r}]"
        raise OptionError(msg)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        msg = f"{what}={names!r} is no list of column names; give one, as {what}=['a', 'b']"
        raise OptionError(msg)
    return tuple(names)


def check_text(what: str, value: object, meaning: str) -> None:
    """Refuse what is no string for ``what``; ``meaning`` says what to give.

    Examples
    --------
    >>> check_text("prefix", None, "what goes before the names")
    Traceback (most recent call last):
    semistream.errors.OptionError: prefix=None is no string; give what goes before the names, ...
    """
    if not isinstance(value, str):
        msg = f"{what}={value!r} is no string; give {meaning}, or leave {what} out"
        raise OptionError(msg)
