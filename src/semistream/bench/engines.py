"""What a user could write in an afternoon: the same join, chunk by chunk, on a store of others."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["ENGINES", "DuckDb", "Engine", "Lmdb", "RocksDb", "RowFormat", "Sqlite"]

_LOOKUP = "SELECT m.* FROM json_each(?) AS wanted JOIN master AS m ON m.key = wanted.value"


class Engine(ABC):
    """A master in a store of its own; ``path`` is its file or folder, ``memory`` its own cache."""

    name: ClassVar[str]
    package: ClassVar[str]
    note: ClassVar[str]
    """What it holds, and where."""

    def __init__(self, path: Path, schema: pa.Schema, memory: int) -> None:
        self.path, self.schema, self.memory = path, schema, memory

    @classmethod
    def missing(cls) -> str:
        """Say what is missing, nothing if it can run."""
        found = importlib.util.find_spec(cls.package) is not None
        return "" if found else f"{cls.package} is not installed: pip install 'semistream[bench]'"

    @abstractmethod
    def build(self, rows: pa.RecordBatchReader) -> None:
        """Store the master's rows, which come in order of their keys."""

    @abstractmethod
    def open(self) -> None:
        """Make ready for joins."""

    @abstractmethod
    def join(self, chunk: pa.RecordBatch) -> pa.Table:
        """Give the inner join of a chunk: the stream's columns, then the master's without key."""

    def close(self) -> None:
        """Let go of the store."""


class DuckDb(Engine):
    """DuckDB with the master in a database file, one thread, and a memory limit."""

    name, package = "duckdb", "duckdb"
    note = "memory_limit of the budget; builds on the chunk and scans the table"

    def build(self, rows: pa.RecordBatchReader) -> None:
        """Store the rows as a table."""
        import duckdb  # noqa: PLC0415 - an extra

        with duckdb.connect(str(self.path)) as connection:
            connection.register("source", rows)
            connection.execute("CREATE TABLE master AS SELECT * FROM source")

    def open(self) -> None:
        """Connect, with the limits."""
        import duckdb  # noqa: PLC0415 - an extra

        self._connection = duckdb.connect(str(self.path), read_only=True)
        self._connection.execute("SET threads = 1")
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.execute(f"SET memory_limit = '{self.memory} B'")

    def join(self, chunk: pa.RecordBatch) -> pa.Table:
        """Register the chunk, join, fetch as Arrow."""
        self._connection.register("chunk", pa.Table.from_batches([chunk]))
        columns = "chunk.*, master.* EXCLUDE (key)"
        # A relation, not execute(): its way to Arrow makes no extra copy.
        found = self._connection.sql(f"SELECT {columns} FROM chunk JOIN master USING (key)")  # noqa: S608
        return found.to_arrow_table()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class _ByKey(Engine):
    """A store that is asked for the de-duplicated keys of a chunk."""

    def join(self, chunk: pa.RecordBatch) -> pa.Table:
        """Ask for each key once, then give its row to every stream row that has it."""
        keys, of_row = np.unique(chunk["key"].to_numpy(), return_inverse=True)
        present, found = self._fetch(keys)
        place = np.full(len(keys), -1)
        place[present] = np.arange(len(present))
        wanted = place[of_row]
        if len(present) < len(keys):
            chunk = chunk.filter(pa.array(wanted >= 0))
            wanted = wanted[wanted >= 0]
        columns = [*chunk.columns, *found.take(pa.array(wanted)).columns]
        names = [*chunk.schema.names, *found.schema.names]
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, names=names)])

    @abstractmethod
    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        """Give which of the keys are there, and their rows in the same order."""


class Sqlite(_ByKey):
    """SQLite, asked for the de-duplicated keys of a chunk in one statement."""

    name, package = "sqlite", "sqlite3"
    note = "page cache of the budget, and the operating system's beside it"

    def build(self, rows: pa.RecordBatchReader) -> None:
        """Store the rows as a table whose key is its row id."""
        names = self.schema.names
        columns = ", ".join(["key INTEGER PRIMARY KEY", *names[1:]])
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"CREATE TABLE master ({columns})")
            insert = f"INSERT INTO master VALUES ({', '.join('?' * len(names))})"  # noqa: S608
            for batch in rows:
                connection.executemany(insert, zip(*batch.to_pydict().values(), strict=True))
        connection.close()

    def open(self) -> None:
        """Connect, with a cache of the budget."""
        self._connection = sqlite3.connect(self.path)
        self._connection.execute(f"PRAGMA cache_size = -{self.memory // 1024}")

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        rows = self._connection.execute(_LOOKUP, [json.dumps(keys.tolist())]).fetchall()
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [
            [] for _ in self.schema
        ]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns[1:], list(self.schema)[1:], strict=True)
        ]
        present = np.searchsorted(keys, np.array(columns[0], np.int64))
        return present, pa.RecordBatch.from_arrays(arrays, names=self.schema.names[1:])

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


@dataclass(frozen=True)
class RowFormat:
    """Rows of fixed width as bytes, and back: what a key-value store holds for a key."""

    schema: pa.Schema

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The layout of a row."""
        kinds = [
            f"V{kind.byte_width}"
            if pa.types.is_fixed_size_binary(kind)
            else np.dtype(kind.to_pandas_dtype()).str
            for kind in self.schema.types
        ]
        return np.dtype(list(zip(self.schema.names, kinds, strict=True)))

    def pack(self, rows: pa.RecordBatch) -> list[bytes]:
        """Give the bytes of each row."""
        packed = np.empty(rows.num_rows, self.dtype)
        for name, column in zip(self.schema.names, rows.columns, strict=True):
            start = column.offset * self.dtype[name].itemsize
            packed[name] = np.frombuffer(column.buffers()[1], self.dtype[name], len(column), start)
        return _pieces(packed)

    def unpack(self, rows: bytes) -> pa.RecordBatch:
        """Give the rows whose bytes these are."""
        packed = np.frombuffer(rows, self.dtype)
        columns = [
            pa.Array.from_buffers(
                kind, len(packed), [None, pa.py_buffer(np.ascontiguousarray(packed[name]))]
            )
            for name, kind in zip(self.schema.names, self.schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _pieces(values: NDArray[Any]) -> list[bytes]:
    """Give the bytes of each value."""
    pieces: list[bytes] = values.view(f"V{values.itemsize}").tolist()
    return pieces


def _key_bytes(keys: Ints) -> list[bytes]:
    """Give keys as bytes that are in the order of the numbers."""
    return _pieces(keys.astype(">i8"))


class _KeyValue(_ByKey):
    """A store of bytes for bytes."""

    @cached_property
    def format(self) -> RowFormat:
        """How rows are stored: without their key."""
        return RowFormat(pa.schema(list(self.schema)[1:]))

    def _unpacked(self, rows: list[bytes | None]) -> tuple[Ints, pa.RecordBatch]:
        """Give which rows are there, and those rows."""
        present = np.flatnonzero([row is not None for row in rows])
        return present, self.format.unpack(b"".join([row for row in rows if row is not None]))

    def _pairs(self, batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        rows = self.format.pack(batch.drop_columns(["key"]))
        return list(zip(_key_bytes(batch["key"].to_numpy()), rows, strict=True))


class Lmdb(_KeyValue):
    """LMDB, asked for the de-duplicated keys of a chunk, in order."""

    name, package = "lmdb", "lmdb"
    note = "no cache of its own: its file lives in the operating system's, as much as there is"

    def build(self, rows: pa.RecordBatchReader) -> None:
        """Append the rows."""
        with self._environment(1 << 36) as store:
            for batch in rows:
                with store.begin(write=True) as writing, writing.cursor() as cursor:
                    cursor.putmulti(self._pairs(batch), append=True)

    def open(self) -> None:
        """Open the store, begin to read."""
        self._store = self._environment(1 << 36)
        self._reading = self._store.begin()

    def _environment(self, size: int) -> Any:  # noqa: ANN401 - the package has no types
        import lmdb  # noqa: PLC0415 - an extra

        return lmdb.open(str(self.path), map_size=size, sync=False, metasync=False)

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        # One by one and copied: measured seven times faster than getmulti with buffers.
        get = self._reading.get
        return self._unpacked([get(key) for key in _key_bytes(keys)])

    def close(self) -> None:
        """End reading."""
        self._reading.abort()
        self._store.close()


class RocksDb(_KeyValue):
    """RocksDB, asked for the de-duplicated keys of a chunk by multi-get."""

    name, package = "rocksdb", "rocksdict"
    note = "block cache of the budget, and the operating system's beside it"

    def build(self, rows: pa.RecordBatchReader) -> None:
        """Write the rows in batches, then compact."""
        import rocksdict  # noqa: PLC0415 - an extra

        store = self._store_at()
        for batch in rows:
            writing = rocksdict.WriteBatch(raw_mode=True)
            for key, row in self._pairs(batch):
                writing.put(key, row)
            store.write(writing)
        store.compact_range(None, None)
        store.close()

    def open(self) -> None:
        """Open the store."""
        self._store = self._store_at()

    def _store_at(self) -> Any:  # noqa: ANN401 - as the package types it
        import rocksdict  # noqa: PLC0415 - an extra

        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(self.memory))
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_allow_mmap_reads(True)  # measured 1.4 times faster than without
        return rocksdict.Rdict(str(self.path), options)

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        return self._unpacked(self._store.get(_key_bytes(keys)))

    def close(self) -> None:
        """Close the store."""
        self._store.close()


ENGINES: tuple[type[Engine], ...] = (DuckDb, Lmdb, RocksDb, Sqlite)
