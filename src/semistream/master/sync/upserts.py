"""Changes that a caller brings: rows to put in, keys to take out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.arrow.types import plain_schema, plain_type
from semistream.errors import OptionError, SchemaError
from semistream.master.lake.table import Feed, Scope, conform
from semistream.master.source import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from semistream.master.files.master import FileMaster

__all__ = ["caller_changes"]

# Arrow casts values between types of one of these kinds without guessing.
_KINDS = (
    *(pa.types.is_integer, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean),
)


def caller_changes(
    master: FileMaster,
    upserts: Any,  # noqa: ANN401 - a table, batch or reader
    deletes: Any,  # noqa: ANN401 - likewise, or keys
) -> Feed:
    """Return the changes as a feed; the rows of all keys that they name are replaced."""
    schema = plain_schema(master.schema)
    new = None if upserts is None else _open("upserts", upserts, master, schema.names)
    old = None if deletes is None else _open_deletes(deletes, master)

    def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
        for weight, what, reader in ((1, "upserts", new), (0, "deletes", old)):
            for batch in reader or ():
                try:
                    yield weight, conform(batch, schema)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    msg = f"{what} has a value that the master's column cannot hold: {error}"
                    raise SchemaError(msg) from error

    return Feed("given", Scope.KEYS, batches)


def _open(
    what: str, table: object, master: FileMaster, names: Iterable[str]
) -> pa.RecordBatchReader:
    """Open a table of changes; refuse columns of types from which values would be guessed."""
    reader, wanted = Rows.of(table, what).reader, plain_schema(master.schema)
    for name in names:
        if name not in reader.schema.names:
            raise SchemaError.missing(f"table of {what}", name, reader.schema.names)
        ours, theirs = reader.schema.field(name).type, wanted.field(name).type
        if _is_text(ours) != _is_text(theirs) and not pa.types.is_null(ours):
            msg = f"column {name!r} of {what} is {ours}, the master's is {theirs}: cast it first"
            raise SchemaError(msg)
    try:
        master.keys.check(reader.schema, master.key, f"{what}'")
    except SchemaError as error:
        msg = f"{what}: {error}"
        raise SchemaError(msg) from None
    return reader


def _is_text(kind: pa.DataType) -> bool:
    plain = plain_type(kind)
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def _open_deletes(deletes: Any, master: FileMaster) -> pa.RecordBatchReader:  # noqa: ANN401
    """Open the keys to take out as batches of the key columns."""
    if isinstance(deletes, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        reader = _open("deletes", deletes, master, master.key)
        keys = (batch.select(list(master.key)) for batch in reader)
        schema = pa.schema([reader.schema.field(name) for name in master.key])
        return pa.RecordBatchReader.from_batches(schema, keys)
    if len(master.key) > 1:
        msg = (
            f"deletes is a {type(deletes).__name__}; the key has several columns: give a pyarrow "
            f"Table with {', '.join(master.key)}"
        )
        raise OptionError(msg)
    typed = isinstance(deletes, pa.Array | pa.ChunkedArray)
    values = deletes if typed else _key_array(deletes, master)
    return _open("deletes", pa.table({master.key[0]: values}), master, master.key)


def _key_array(deletes: Any, master: FileMaster) -> pa.Array:  # noqa: ANN401 - anything
    """Convert Python's values to the key's type, if they are of its kind.

    Arrow, given that type, would cut 1.5 to 1.
    """
    kind, t = plain_schema(master.schema).field(master.key[0]).type, pa.types
    try:
        if isinstance(deletes, str | bytes | dict):
            raise TypeError(f"a {type(deletes).__name__} is no list of keys")  # noqa: TRY301
        values = deletes if hasattr(deletes, "__len__") else list(deletes)
        try:
            array = pa.array(values)
        except OverflowError:  # by way of decimals, into which Arrow puts nothing but integers
            array = pa.array(values, pa.decimal128(38, 0)).cast(pa.uint64())
        is_bytes = t.is_binary(kind) or t.is_fixed_size_binary(kind)
        if t.is_null(array.type) or (t.is_binary(array.type) and is_bytes):
            return pa.array(values, kind)
        alike = any(is_(array.type) and is_(kind) for is_ in _KINDS)
        return array.cast(kind) if alike and _zoned(array.type) == _zoned(kind) else array
    except (TypeError, OverflowError, pa.ArrowException) as error:
        msg = (
            f"deletes={deletes!r} cannot be keys of the master, which are {kind} ({error}); give a "
            "list of such, an array, or a pyarrow Table"
        )
        raise SchemaError(msg) from error


def _zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None
