"""All of the master in memory, as bounds: Arrow's take and Polars."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.stores.base import Engine, placed


class _Table(Engine):
    """A master in an Arrow file, read whole."""

    note = "all of R in memory"

    def build(self, rows: pa.RecordBatchReader) -> None:
        table = rows.read_all().combine_chunks()
        with pa.OSFile(str(self.path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            file.write_table(table)

    def _read(self) -> pa.Table:
        with pa.OSFile(str(self.path)) as source:  # not mapped: it is to be in memory
            return pa.ipc.open_file(source).read_all()


class ArrowInMemory(_Table):
    """Arrow's take, each row's place found in a table of places by its key: no hashing at all."""

    name, package = "arrow-memory", "pyarrow"

    def open(self) -> None:
        table = self._read()
        keys = table[self.key].to_numpy()
        self._places: NDArray[np.int32] = np.full(int(keys.max(initial=-1)) + 1, -1, np.int32)
        self._places[keys] = np.arange(len(keys), dtype=np.int32)
        self._rows = table.drop_columns([self.key]).combine_chunks().to_batches()[0]

    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        keys = chunk[self.key].to_numpy()
        known = keys < len(self._places)
        places = np.where(known, self._places[np.where(known, keys, 0)], -1)
        return placed(chunk, self._rows, places, how)


class PolarsInMemory(_Table):
    """Polars' join with a frame of all rows; it builds its hash table anew for every chunk."""

    name, package = "polars-memory", "polars"
    unique = False

    def open(self) -> None:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        import polars

        self._polars: Any = polars
        self._frame: Any = polars.from_arrow(self._read())

    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        stream = self._polars.from_arrow(pa.Table.from_batches([chunk]))
        return stream.join(self._frame, on=self.key, how=how).to_arrow()
