"""Rows from JSON, one object a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["json_rows"]


def json_rows(
    objects: Iterable[bytes], types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Give the rows that these objects are, empty ones left out.

    Columns have the types given. Others have those that these objects speak for: further ones, in
    another call, may speak for others. `pyarrow.ArrowInvalid` says what cannot be understood.

    Examples
    --------
    >>> objects = [b'{"id": "2024-01-01", "n": 1}', b'{"id": null, "n": 0.5}']
    >>> [batch.to_pylist() for batch in json_rows(objects, {"id": pa.string()})]
    [[{'id': '2024-01-01', 'n': 1.0}, {'id': None, 'n': 0.5}]]
    """
    content = b"\n".join(item for item in objects if item.strip())
    if not content:
        return iter(())
    parse = pyarrow.json.ParseOptions(pa.schema(list(types.items())), newlines_in_values=True)
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    return iter(pyarrow.json.read_json(pa.BufferReader(content), read, parse).to_batches())
