"""The rows of a master that is at hand: what another one, with other pages, is built from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import concat_rows, take_rows
from semistream.arrow.types import plain_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.master import FileMaster

__all__ = ["master_rows_of"]

_AT_ONCE = 4 << 20  # bytes of pages


def master_rows_of(master: FileMaster) -> pa.RecordBatchReader:
    """Read a master's rows, in plain types: what another master can be built from.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> table = pa.table({"id": [2, 1], "name": ["ink", "pen"]})
    >>> master = ss.build_master(table, tempfile.mkdtemp(), key="id")
    >>> master_rows_of(master).read_all().to_pylist()
    [{'id': 1, 'name': 'pen'}, {'id': 2, 'name': 'ink'}]
    """
    schema = _plain(master)

    def batches() -> Iterator[pa.RecordBatch]:
        for page in _pages(master):
            yield pa.RecordBatch.from_arrays(
                [_column(master, page, name) for name in schema.names], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain(master: FileMaster) -> pa.Schema:
    """Give the master's columns in the types that pages hold, the key's as it is compared."""
    kinds = {field.name: plain_type(field.type) for field in master.schema}
    if master.keys.exact:
        kinds[master.key[0]] = master.keys.types[0]
    return pa.schema(list(kinds.items()))


def _pages(master: FileMaster) -> Iterator[pa.RecordBatch]:
    """Give all rows, in memory of their own: the reader's is valid until its next call."""
    parts = master.statistics.parts
    some = max(1, _AT_ONCE // max(1, master.statistics.largest_part))
    reader = master.reader(some)
    for start in range(0, parts, some):
        pages = reader.load(start, min(some, parts - start))
        yield concat_rows(pages) if len(pages) > 1 else take_rows(pages[0], _all(pages[0]))


def _all(page: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.arange(page.num_rows)


def _column(master: FileMaster, page: pa.RecordBatch, name: str) -> pa.Array:
    if master.keys.exact and name == master.key[0]:
        return master.keys.decode(page.column(0))
    return page.column(page.schema.get_field_index(name))
