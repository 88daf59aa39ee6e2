"""What becomes of stream rows without a master row.

Inside one DataFrame such a row can be left out, filled, refused, or only marked: the writer behind
it splits rows by their mark, and writes those without a master row to a table of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.arrow.keys import TypeName

__all__ = [
    "ABSENT",
    "MATCHED",
    "NULL_KEY",
    "QUARANTINED",
    "SINCE",
    "SPLITTING",
    "STAGED",
    "STATUS",
    "WORDS",
    "Missing",
    "OnMissing",
    "default_value",
]

MATCHED, ABSENT, NULL_KEY = "matched", "absent", "null key"
"""What a status column says of a row."""

DEFAULTS = "defaults"
STATUS = "_status"
"""The status column's name where rows are to be split and none is given."""
SPLITTING = ("quarantine", "wait")
WORDS = ("null", "drop", "error", "quarantine", "wait")
QUARANTINED = ("_reason", "_enrichment", "_time", "_query", "_batch", "_attempts", "_row")
"""What a quarantine has beside the stream's columns."""
SINCE = "waiting_since"
"""What a table of waiting rows has beside them: when a row came."""
STAGED = "semistream_row"
"""What a batch has beside its columns on its way into a database: the number of a row."""
Missing = str | Mapping[str, Any]


@dataclass(frozen=True)
class OnMissing:
    """What is done with rows of a left join that have no master row."""

    kind: str = "null"
    """One of `WORDS`, or ``"defaults"``."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values for the master's columns of such rows, by the names that the master has."""

    @classmethod
    def of(cls, on_missing: Missing | None, how: str) -> OnMissing:
        """Return what the argument of `enrich` asks for, in a join of this kind.

        Examples
        --------
        >>> OnMissing.of({"price": 0.0}, "left").kind
        'defaults'
        >>> OnMissing.of("quarantin", "left")
        Traceback (most recent call last):
        semistream.errors.OptionError: on_missing 'quarantin' is not known; choose one of: ...
        """
        if on_missing is None:
            return cls()
        if how != "left":
            msg = (
                f"on_missing={on_missing!r} says what becomes of rows without a master row, and "
                f"how={how!r} has said it already; take how='left' with it"
            )
            raise OptionError(msg)
        if isinstance(on_missing, Mapping):
            return cls(DEFAULTS, dict(on_missing))
        if on_missing not in WORDS:
            error = OptionError.unknown("on_missing", on_missing, WORDS)
            msg = f"{error} Or give default values, as {{'price': 0.0}}."
            raise OptionError(msg)
        return cls(on_missing)

    def checked(
        self, schema: pa.Schema, payload: Sequence[str], type_name: TypeName = str
    ) -> OnMissing:
        """Return default values in the types of the master's columns; refuse what does not fit."""
        if self.kind == DEFAULTS and not self.defaults:
            msg = "on_missing={} gives no default value; name a column, or take on_missing='null'"
            raise OptionError(msg)
        values = {}
        for name, value in self.defaults.items():
            if name not in payload:
                raise SchemaError.missing("enrichment", name, payload)
            values[name] = default_value(value, schema.field(name), type_name)
        return OnMissing(self.kind, values)


def default_value(value: object, column: pa.Field, type_name: TypeName = str) -> Any:  # noqa: ANN401 - any type of Arrow's
    """Return a default value in the type of its column.

    Text is read where the column is a date, a time or a decimal, so that a file can give it.

    Examples
    --------
    >>> default_value("2020-02-29", pa.field("added", pa.date32()))
    datetime.date(2020, 2, 29)
    >>> default_value(1.5, pa.field("units", pa.int32()))
    Traceback (most recent call last):
    semistream.errors.SchemaError: 1.5 is no default value of column 'units', which is int32; ...
    """
    t, kind = pa.types, column.type
    if t.is_dictionary(kind):
        kind = kind.value_type
    if t.is_nested(kind):
        shown = type_name(kind)
        msg = f"column {column.name!r} is {shown}: such columns can have no default value but null"
        raise SchemaError(msg)
    if t.is_decimal(kind) and isinstance(value, float):
        value = str(value)
    is_text = isinstance(value, str) and (t.is_temporal(kind) or t.is_decimal(kind))
    try:
        if isinstance(value, bool) != t.is_boolean(kind) and value is not None:
            raise pa.ArrowInvalid
        scalar = pa.scalar(value).cast(kind) if is_text else pa.scalar(value, kind)
        if t.is_integer(kind) and scalar.as_py() != value:
            raise pa.ArrowInvalid  # Arrow cuts the rest off
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        shown = type_name(column.type)
        msg = (
            f"{value!r} is no default value of column {column.name!r}, which is {shown}; "
            "give one of this type, or leave the column out to have nulls"
        )
        raise SchemaError(msg) from None
    return scalar.as_py()
