"""A stream for a master that is at hand: its own keys, as skewed as asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.allocation import concat_rows, take_rows
from semistream.errors import OptionError
from semistream.plain import plain_type, row_width
from semistream.workloads import Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.master import Master

__all__ = ["keys_of", "master_rows_of", "skewed_stream", "stream_schema"]

_MOST_KEYS = 50_000_000
_AT_ONCE = 4 << 20  # bytes of pages
_BATCH_ROWS = 65_536
_FILLER = "filler"
_ASSUMED = 16  # bytes of a key whose width varies


def master_rows_of(master: Master) -> pa.RecordBatchReader:
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


def _plain(master: Master) -> pa.Schema:
    """Give the master's columns in the types that pages hold, the key's as it is compared."""
    kinds = {field.name: plain_type(field.type) for field in master.schema}
    if master.keys.exact:
        kinds[master.key[0]] = master.keys.types[0]
    return pa.schema(list(kinds.items()))


def _pages(master: Master) -> Iterator[pa.RecordBatch]:
    """Give all rows, in memory of their own: the reader's is valid until its next call."""
    parts = master.statistics.parts
    some = max(1, _AT_ONCE // max(1, master.statistics.largest_part))
    reader = master.reader(some)
    for start in range(0, parts, some):
        pages = reader.load(start, min(some, parts - start))
        yield concat_rows(pages) if len(pages) > 1 else take_rows(pages[0], _all(pages[0]))


def _all(page: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.arange(page.num_rows)


def _column(master: Master, page: pa.RecordBatch, name: str) -> pa.Array:
    if master.keys.exact and name == master.key[0]:
        return master.keys.decode(page.column(0))
    return page.column(page.schema.get_field_index(name))


def keys_of(master: Master) -> pa.Table:
    """Give the master's join values, each once, in the order of its pages."""
    if master.statistics.values > _MOST_KEYS:
        msg = (
            f"{master.statistics.values:,} join values are too many to hold them all for a stream; "
            f"the most is {_MOST_KEYS:,}: leave measuring out (--no-measure)"
        )
        raise OptionError(msg)
    schema = pa.schema([_plain(master).field(name) for name in master.key])
    found = []
    last: int | None = None
    for page in _pages(master):
        codes = page.column(0).to_numpy()
        first = np.append(codes[0] != last, codes[1:] != codes[:-1])
        last = int(codes[-1])
        columns = [_column(master, page, name) for name in master.key]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        found.append(rows.take(pa.array(np.flatnonzero(first))))
    return pa.Table.from_batches(found, schema=schema).combine_chunks()


def stream_schema(master: Master, row_bytes: int) -> pa.Schema:
    """Give the columns of a stream for a master: its key, and a filler up to ``row_bytes``.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> table = pa.table({"id": ["a"], "filler": [1]})
    >>> stream_schema(ss.build_master(table, tempfile.mkdtemp(), key="id"), 30).names
    ['id', 'filler_']
    """
    keys = [_plain(master).field(name) for name in master.key]
    taken = sum(row_width(field.type) or _ASSUMED for field in keys)
    name = _FILLER
    while name in master.schema.names:
        name += "_"
    return pa.schema([*keys, pa.field(name, pa.binary(max(1, row_bytes - int(taken))))])


def skewed_stream(
    master: Master, exponent: float, row_bytes: int, rows: int, seed: int = 0
) -> tuple[pa.RecordBatch, ...]:
    """Make stream rows that ask for a master's keys by Zipf's law, hot keys lying scattered.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> table = pa.table({"id": range(100), "price": range(100)})
    >>> master = ss.build_master(table, tempfile.mkdtemp(), key="id")
    >>> (batch,) = skewed_stream(master, exponent=1.0, row_bytes=20, rows=1000)
    >>> batch.num_rows, [str(field.type) for field in batch.schema]
    (1000, ['int64', 'fixed_size_binary[12]'])
    """
    keys, schema = keys_of(master), stream_schema(master, row_bytes)
    zipf, draw = Zipf(len(keys), exponent), np.random.default_rng(seed)
    sizes = [min(_BATCH_ROWS, rows - start) for start in range(0, rows, _BATCH_ROWS)]
    return tuple(_batch(keys, zipf.sample(size, draw), schema) for size in sizes)


def _batch(keys: pa.Table, chosen: npt.NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
    rows = keys.take(pa.array(chosen)).combine_chunks().to_batches()[0]
    kind = schema[-1].type
    zeros = pa.py_buffer(bytes(kind.byte_width * rows.num_rows))
    filler = pa.FixedSizeBinaryArray.from_buffers(kind, rows.num_rows, [None, zeros])
    return pa.RecordBatch.from_arrays([*rows.columns, filler], schema=schema)
