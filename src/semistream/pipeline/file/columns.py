"""Column choices: which columns reach the sink, in which order, under which names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from semistream.errors import SchemaError
from semistream.pipeline.file.section import Conflicts, Section
from semistream.values import TEXT, mapping, names, nearest

__all__ = ["Columns", "arrange", "wrong_columns"]

Pairs = Annotated[Mapping[str, str], mapping(TEXT)]


@dataclass(frozen=True, kw_only=True)
class Columns(Section):
    """Which columns reach the sink, in the names that come out of the enrichments."""

    replace: Pairs = field(default_factory=dict)
    """{a: b} puts column b in the place of a, which goes."""
    drop: Annotated[tuple[str, ...], names()] = ()
    """Columns that do not reach the sink."""
    keep: Annotated[tuple[str, ...] | None, names()] = None
    """Columns that reach the sink, in this order."""
    rename: Pairs = field(default_factory=dict)
    """{old: new} renames columns."""

    def conflicts(self) -> Conflicts:
        """Yield settings that have no use beside others."""
        if self.keep is not None and self.drop:
            yield "drop", "and keep say the same in two ways; give one of them"


def arrange(columns: Columns, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the columns that reach the sink, in order: name before, name after.

    A column that replaces another takes its place. ``keep`` also gives the order.

    Examples
    --------
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
    """Yield every mistake in the choice from these columns: which setting, and what is wrong."""
    uses = [(f"replace.{old}", name) for old, new in columns.replace.items() for name in (old, new)]
    uses += [(f"drop[{i}]", name) for i, name in enumerate(columns.drop)]
    uses += [(f"keep[{i}]", name) for i, name in enumerate(columns.keep or ())]
    uses += [(f"rename.{name}", name) for name in columns.rename]
    for setting, name in uses:
        if name not in names:
            yield setting, f": {SchemaError.missing('enriched stream', name, names)}"
    gone = dict.fromkeys(columns.replace, "replaced") | dict.fromkeys(columns.drop, "dropped")
    for i, name in enumerate(columns.keep or ()):
        if name in gone:
            yield f"keep[{i}]", f"{name!r} is {gone[name]}"
    after = [new for _, new in arrange(columns, names)]
    for old, new in columns.rename.items():
        if old in gone:
            yield f"rename.{old}", f"is of a column that is {gone[old]}"
        elif columns.keep is not None and old not in columns.keep:
            yield f"rename.{old}", f"is of a column that is not kept{nearest(old, columns.keep)}"
        if after.count(new) > 1:
            yield f"rename.{old}", f"gives a second column {new!r}; drop the other, or choose anew"
    if not after:
        yield ("keep" if columns.keep is not None else "drop"), "leaves no column at all"
