"""Column choices: which columns reach the sink, in which order, under which names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.errors import SchemaError
from semistream.pipeline.file.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semistream.pipeline.file.sections import Columns

__all__ = ["arrange", "wrong_columns"]


def arrange(columns: Columns, names: Sequence[str]) -> list[tuple[str, str]]:
    """Give the columns that reach the sink, in order: name before, name after.

    A column that replaces another takes its place. ``keep`` also gives the order.

    Examples
    --------
    >>> from semistream.pipeline.file.sections import Columns
    >>> columns = Columns(replace={"product_id": "product_key"}, rename={"price": "unit_price"})
    >>> arrange(columns, ["product_id", "sale", "product_key", "price"])
    [('product_key', 'product_key'), ('sale', 'sale'), ('price', 'unit_price')]
    """
    replacing = set(columns.replace.values())
    placed = [columns.replace.get(name, name) for name in names if name not in replacing]
    kept = [name for name in placed if name not in columns.drop]
    ordered = kept if columns.keep is None else [name for name in columns.keep if name in kept]
    return [(name, columns.rename.get(name, name)) for name in ordered]


def wrong_columns(columns: Columns, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give every mistake in the choice from these columns: which setting, and what is wrong."""
    yield from _missing(columns, names)
    yield from _gone(columns)
    after = [new for _, new in arrange(columns, names)]
    for old, new in columns.rename.items():
        if after.count(new) > 1:
            yield f"rename.{old}", f"gives a second column {new!r}; drop the other, or choose anew"
    if not after:
        yield ("keep" if columns.keep is not None else "drop"), "leaves no column at all"


def _missing(columns: Columns, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    def absent(name: str) -> str:
        return str(SchemaError.missing("enriched stream", name, names))

    for old, new in columns.replace.items():
        for name in (old, new):
            if name not in names:
                yield f"replace.{old}", f": {absent(name)}"
    for setting, listed in (("drop", columns.drop), ("keep", columns.keep or ())):
        for i, name in enumerate(listed):
            if name not in names:
                yield f"{setting}[{i}]", f": {absent(name)}"
    for name in columns.rename:
        if name not in names:
            yield f"rename.{name}", f": {absent(name)}"


def _gone(columns: Columns) -> Iterator[tuple[str, str]]:
    """Give the uses of a column that another setting has taken away."""
    dropped = {
        **dict.fromkeys(columns.replace, "replaced"),
        **dict.fromkeys(columns.drop, "dropped"),
    }
    for i, name in enumerate(columns.keep or ()):
        if name in dropped:
            yield f"keep[{i}]", f"{name!r} is {dropped[name]}"
    for name in columns.rename:
        if name in dropped:
            yield f"rename.{name}", f"is of a column that is {dropped[name]}"
        elif columns.keep is not None and name not in columns.keep:
            yield f"rename.{name}", f"is of a column that is not kept{nearest(name, columns.keep)}"
