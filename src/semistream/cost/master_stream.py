"""A stream for a master that is at hand: its own keys, as skewed as asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import OptionError
from semistream.plain import plain_type
from semistream.workloads import Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.master import Master

__all__ = ["keys_of", "master_rows_of", "skewed_stream"]

_MOST_KEYS = 50_000_000
_AT_ONCE = 16  # pages
_BATCH_ROWS = 65_536
_FILLER = "filler"


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
    kinds = {field.name: plain_type(field.type) for field in master.schema}
    if master.keys.exact:
        kinds[master.key[0]] = master.keys.types[0]
    schema = pa.schema(list(kinds.items()))

    def batches() -> Iterator[pa.RecordBatch]:
        for page in _pages(master):
            yield pa.RecordBatch.from_arrays(
                [_column(master, page, name) for name in schema.names], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _pages(master: Master) -> Iterator[pa.RecordBatch]:
    reader, parts = master.reader(_AT_ONCE), master.statistics.parts
    for start in range(0, parts, _AT_ONCE):
        for page in reader.load(start, min(_AT_ONCE, parts - start)):
            yield pa.concat_batches([page]) if master.read == "mapped" else _copied(page)


def _copied(page: pa.RecordBatch) -> pa.RecordBatch:
    """Give a page memory of its own: what the reader gave is valid until its next call."""
    return page.take(pa.array(np.arange(page.num_rows)))


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
    kinds = [(name, master_rows_of(master).schema.field(name).type) for name in master.key]
    found = []
    last: int | None = None
    for page in _pages(master):
        codes = page.column(0).to_numpy()
        first = np.append(codes[0] != last, codes[1:] != codes[:-1])
        last = int(codes[-1])
        columns = [_column(master, page, name) for name in master.key]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(kinds))
        found.append(rows.take(pa.array(np.flatnonzero(first))))
    return pa.Table.from_batches(found, schema=pa.schema(kinds)).combine_chunks()


def skewed_stream(
    master: Master, exponent: float, row_bytes: int, rows: int, seed: int = 0
) -> tuple[pa.RecordBatch, ...]:
    """Make stream rows that ask for a master's keys by Zipf's law, hot keys lying scattered.

    Beside the key a row has a filler, so that it is of about ``row_bytes`` bytes.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> table = pa.table({"id": range(100), "price": range(100)})
    >>> master = ss.build_master(table, tempfile.mkdtemp(), key="id")
    >>> (batch,) = skewed_stream(master, exponent=1.0, row_bytes=20, rows=1000)
    >>> batch.num_rows, [str(field.type) for field in batch.schema]
    (1000, ['int64', 'fixed_size_binary[12]'])
    """
    keys, zipf = keys_of(master), Zipf(max(1, len_of(master)), exponent)
    width = max(1, row_bytes - int(keys.nbytes / max(1, len(keys))))
    draw = np.random.default_rng(seed)
    sizes = [min(_BATCH_ROWS, rows - start) for start in range(0, rows, _BATCH_ROWS)]
    return tuple(_batch(keys, zipf.sample(size, draw), width) for size in sizes)


def len_of(master: Master) -> int:
    """Give how many join values there are."""
    return master.statistics.values


def _batch(keys: pa.Table, chosen: np.ndarray, width: int) -> pa.RecordBatch:  # type: ignore[type-arg]
    rows = keys.take(pa.array(chosen)).combine_chunks().to_batches()[0]
    kind = pa.binary(width)
    filler = pa.FixedSizeBinaryArray.from_buffers(
        kind, rows.num_rows, [None, pa.py_buffer(bytes(width * rows.num_rows))]
    )
    return pa.RecordBatch.from_arrays(
        [*rows.columns, filler], schema=rows.schema.append(pa.field(_FILLER, kind))
    )
