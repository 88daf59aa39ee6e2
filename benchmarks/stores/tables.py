"""DuckDB, SQLite, Arrow and Polars: the master as a table, on disk or all of it in memory."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.stores.base import ByKey, Engine, Ints, placed


class DuckDb(Engine):
    """DuckDB with the master in a database file, mostly one thread, and a memory limit."""

    name, package = "duckdb", "duckdb"
    note = "memory_limit of the budget; builds on the chunk and scans the table"
    least = 128 << 20  # a chunk of 500,000 rows and what it is joined to
    unique = False
    threads: ClassVar[int] = 1

    def build(self, rows: pa.RecordBatchReader) -> None:
        import duckdb

        with duckdb.connect(str(self.path)) as connection:
            _fill(connection, rows)

    def open(self) -> None:
        import duckdb

        self._connection = self._prepared(duckdb.connect(str(self.path), read_only=True))
        self._connection.execute(f"SET memory_limit = '{self.memory} B'")

    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        self._connection.register("chunk", pa.Table.from_batches([chunk]))
        columns = f"chunk.*, master.* EXCLUDE ({self.key})"
        # A relation, not execute(): its way to Arrow makes no extra copy.
        query = f"SELECT {columns} FROM chunk {how} JOIN master USING ({self.key})"  # noqa: S608
        return self._connection.sql(query).to_arrow_table()

    def _prepared(self, connection: Any) -> Any:
        connection.execute(f"SET threads = {self.threads}")
        connection.execute("SET preserve_insertion_order = false")
        return connection

    def close(self) -> None:
        self._connection.close()


class DuckDbInMemory(DuckDb):
    """DuckDB with all of the master in memory, without a limit."""

    name = "duckdb-memory"
    note = "all of R in memory"

    def build(self, rows: pa.RecordBatchReader) -> None:
        with pa.OSFile(str(self.path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            for batch in rows:
                file.write_batch(batch)

    def open(self) -> None:
        import duckdb

        self._connection = self._prepared(duckdb.connect())
        with pa.memory_map(str(self.path)) as source:
            _fill(self._connection, pa.ipc.open_file(source).read_all().to_reader())


def _fill(connection: Any, rows: pa.RecordBatchReader) -> None:
    connection.register("source", rows)
    connection.execute("CREATE TABLE master AS SELECT * FROM source")
    connection.unregister("source")


class Sqlite(ByKey):
    """SQLite, asked for the de-duplicated keys of a chunk in one statement, or row by row."""

    name, package = "sqlite", "sqlite3"
    note = "page cache of the budget, and the operating system's beside it"

    def build(self, rows: pa.RecordBatchReader) -> None:
        names = self.schema.names
        columns = ", ".join([f"{self.key} INTEGER PRIMARY KEY", *names[1:]])
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"CREATE TABLE master ({columns})")
            insert = f"INSERT INTO master VALUES ({', '.join('?' * len(names))})"  # noqa: S608
            for batch in rows:
                connection.executemany(insert, zip(*batch.to_pydict().values(), strict=True))
        connection.close()

    def open(self) -> None:
        self._connection = sqlite3.connect(self.path)
        self._connection.execute(f"PRAGMA cache_size = -{self.memory // 1024}")
        names = ", ".join(self.payload.names)
        self._row = f"SELECT {names} FROM master WHERE {self.key} = ?"  # noqa: S608
        wanted = f"json_each(?) AS wanted JOIN master AS m ON m.{self.key} = wanted.value"
        self._rows = f"SELECT m.* FROM {wanted}"  # noqa: S608

    def row(self, key: int) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._connection.execute(self._row, (key,)).fetchone()
        return found

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        rows = self._connection.execute(self._rows, [json.dumps(keys.tolist())]).fetchall()
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [
            [] for _ in self.schema
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns[1:], self.payload, strict=True)]
        present = np.searchsorted(keys, np.array(columns[0], np.int64))
        return present, pa.RecordBatch.from_arrays(arrays, schema=self.payload)

    def close(self) -> None:
        self._connection.close()


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
