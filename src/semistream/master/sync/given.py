"""Changes that a caller brings: rows to put in, keys to take out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import OptionError, SchemaError
from semistream.master.lake.table import Feed, conformed
from semistream.master.source import Rows
from semistream.master.sync.merge import Scope
from semistream.plain import plain_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.master.store import Master

__all__ = ["given_changes"]


def given_changes(
    master: Master,
    upserts: Any,  # noqa: ANN401 - a table, batch or reader
    deletes: Any,  # noqa: ANN401 - likewise, or keys
) -> Feed:
    """Give the changes; the rows of all keys that they name are replaced."""
    schema = plain_schema(master.schema)
    new = None if upserts is None else Rows.of(upserts).reader
    if new is not None:
        for name in schema.names:
            if name not in new.schema.names:
                raise SchemaError.missing("table of upserts", name, new.schema.names)
    old = None if deletes is None else _keys(deletes, master)

    def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in new or ():
            yield 1, conformed(batch, schema)
        for batch in old or ():
            yield 0, conformed(batch, schema)

    return Feed("given", Scope.KEYS, batches)


def _keys(deletes: Any, master: Master) -> pa.RecordBatchReader:  # noqa: ANN401
    """Give the keys to take out as batches of the key columns."""
    if isinstance(deletes, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        reader = Rows.of(deletes).reader
        for name in master.key:
            if name not in reader.schema.names:
                raise SchemaError.missing("table of deletes", name, reader.schema.names)
        keys = (batch.select(list(master.key)) for batch in reader)
        schema = pa.schema([reader.schema.field(name) for name in master.key])
        return pa.RecordBatchReader.from_batches(schema, keys)
    if len(master.key) > 1:
        msg = (
            f"deletes is a {type(deletes).__name__}; the key has several columns: give a pyarrow "
            f"Table with {', '.join(master.key)}"
        )
        raise OptionError(msg)
    kind = plain_schema(master.schema).field(master.key[0]).type
    given = isinstance(deletes, pa.Array | pa.ChunkedArray)
    keys = deletes if given else pa.array(deletes, kind)
    return pa.table({master.key[0]: keys}).to_reader()
