"""Changes that a caller brings: rows to put in, keys to take out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.arrow.types import plain_schema, plain_type
from semistream.errors import OptionError, SchemaError
from semistream.master.lake.table import Feed, Scope, conformed
from semistream.master.source import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from semistream.master.files.master import FileMaster

__all__ = ["given_changes"]


def given_changes(
    master: FileMaster,
    upserts: Any,  # noqa: ANN401 - a table, batch or reader
    deletes: Any,  # noqa: ANN401 - likewise, or keys
) -> Feed:
    """Give the changes; the rows of all keys that they name are replaced."""
    schema = plain_schema(master.schema)
    new = None if upserts is None else _checked("upserts", upserts, master, schema.names)
    old = None if deletes is None else _deletes(deletes, master)

    def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
        for weight, what, reader in ((1, "upserts", new), (0, "deletes", old)):
            for batch in reader or ():
                yield weight, _conformed(what, batch, schema)

    return Feed("given", Scope.KEYS, batches)


def _conformed(what: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return conformed(batch, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"{what} has a value that the master's column cannot hold: {error}"
        raise SchemaError(msg) from error


def _checked(
    what: str, table: object, master: FileMaster, names: Iterable[str]
) -> pa.RecordBatchReader:
    """Open a table of changes; its columns must have types that no value is guessed from."""
    reader, wanted = Rows.of(table, what).reader, plain_schema(master.schema)
    for name in names:
        if name not in reader.schema.names:
            raise SchemaError.missing(f"table of {what}", name, reader.schema.names)
        found = reader.schema.field(name).type
        if _is_text(found) != _is_text(wanted.field(name).type) and not pa.types.is_null(found):
            kind = wanted.field(name).type
            msg = f"column {name!r} of {what} is {found}, the master's is {kind}: cast it first"
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


def _deletes(deletes: Any, master: FileMaster) -> pa.RecordBatchReader:  # noqa: ANN401
    """Return the keys to take out as batches of the key columns."""
    if isinstance(deletes, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        reader = _checked("deletes", deletes, master, master.key)
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
    values = deletes if typed else _array(deletes, master)
    return _checked("deletes", pa.table({master.key[0]: values}), master, master.key)


def _array(deletes: Any, master: FileMaster) -> pa.Array:  # noqa: ANN401 - anything
    """Return Python's values as an array of the key's type, if they are of its kind.

    Arrow, told that type, would cut 1.5 to 1.
    """
    kind = plain_schema(master.schema).field(master.key[0]).type
    try:
        if isinstance(deletes, str | bytes | dict):
            raise TypeError(f"a {type(deletes).__name__} is no list of keys")  # noqa: TRY301
        values = deletes if hasattr(deletes, "__len__") else list(deletes)
        found = _inferred(values)
        if pa.types.is_null(found.type) or (pa.types.is_binary(found.type) and _is_bytes(kind)):
            return pa.array(values, kind)
        alike = any(is_(found.type) and is_(kind) for is_ in _KINDS)
        return found.cast(kind) if alike and _zoned(found.type) == _zoned(kind) else found
    except (TypeError, OverflowError, pa.ArrowException) as error:
        msg = (
            f"deletes={deletes!r} cannot be keys of the master, which are {kind} ({error}); give a "
            "list of such, an array, or a pyarrow Table"
        )
        raise SchemaError(msg) from error


def _inferred(values: Any) -> pa.Array:  # noqa: ANN401 - any values
    try:
        return pa.array(values)
    except OverflowError:  # by way of decimals, into which Arrow puts nothing but integers
        return pa.array(values, pa.decimal128(38, 0)).cast(pa.uint64())


_KINDS = (
    *(pa.types.is_integer, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean),
)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None
