"""LMDB and RocksDB, which hold a row as bytes for a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.stores.base import ByKey, Ints


@dataclass(frozen=True)
class RowFormat:
    """Columns of fixed width one after the other, then a text if the last column is one."""

    schema: pa.Schema

    @cached_property
    def fixed(self) -> pa.Schema:
        """The columns without the text."""
        return pa.schema(list(self.schema)[: len(self.schema) - self.has_text])

    @property
    def has_text(self) -> bool:
        """Whether the last column is a text."""
        return bool(pa.types.is_string(self.schema.types[-1]))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The layout of a row, without the text."""
        kinds = [
            f"V{kind.byte_width}"
            if pa.types.is_fixed_size_binary(kind)
            else np.dtype(kind.to_pandas_dtype()).str
            for kind in self.fixed.types
        ]
        return np.dtype(list(zip(self.fixed.names, kinds, strict=True)))

    def pack(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return the bytes of each row."""
        packed = np.empty(rows.num_rows, self.dtype)
        for name, column in zip(self.fixed.names, rows.columns, strict=False):
            start = column.offset * self.dtype[name].itemsize
            packed[name] = np.frombuffer(column.buffers()[1], self.dtype[name], len(column), start)
        if not self.has_text:
            return pieces(packed)
        texts = rows.columns[-1].cast(pa.binary()).to_pylist()
        return [row + text for row, text in zip(pieces(packed), texts, strict=True)]

    def row(self, packed: bytes) -> tuple[Any, ...]:
        width = self.dtype.itemsize
        values = np.frombuffer(packed[:width], self.dtype)[0].item()
        return (*values, packed[width:].decode()) if self.has_text else values

    def unpack(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        """Return the rows whose bytes these are."""
        joined = np.frombuffer(b"".join(rows), np.uint8)
        ends = np.fromiter(accumulate(map(len, rows), initial=0), np.int64, len(rows) + 1)
        width = self.dtype.itemsize
        packed, texts = self._parted(joined, ends)
        columns = [
            _column(packed[name], f.type)
            for name, f in zip(self.fixed.names, self.fixed, strict=True)
        ]
        if self.has_text:
            offsets = (ends - width * np.arange(len(ends))).astype(np.int32)
            columns.append(
                pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(texts))
            )
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _parted(
        self, joined: NDArray[np.uint8], ends: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Part the fixed columns of all rows from their texts."""
        rows, width = len(ends) - 1, self.dtype.itemsize
        if rows and len(joined) == rows * ends[1] and (np.diff(ends) == ends[1]).all():
            square = joined.reshape(rows, -1)  # all rows are as long: no byte is looked for
            heads, texts = square[:, :width], square[:, width:]
        else:
            starts = ends[:-1, None] + np.arange(width)
            heads, texts = joined[starts], np.delete(joined, starts.ravel())
        packed = np.ascontiguousarray(heads).view(self.dtype).ravel()
        return packed, np.ascontiguousarray(texts)


def _column(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, buffer])


def pieces(values: NDArray[Any]) -> list[bytes]:
    """Return the bytes of each value."""
    each: list[bytes] = values.view(f"V{values.itemsize}").tolist()
    return each


def _key_bytes(keys: Ints) -> list[bytes]:
    """Return keys as bytes that are in the order of the numbers."""
    return pieces(keys.astype(">i8"))


class _KeyValue(ByKey):
    """A store of bytes for bytes."""

    _get: Callable[[bytes], bytes | None]

    @cached_property
    def format(self) -> RowFormat:
        """How rows are stored: without their key."""
        return RowFormat(self.payload)

    def row(self, key: int) -> tuple[Any, ...] | None:
        packed = self._get(key.to_bytes(8, signed=True))
        return None if packed is None else self.format.row(packed)

    def _unpacked(self, rows: list[bytes | None]) -> tuple[Ints, pa.RecordBatch]:
        """Return which rows are there, and those rows."""
        present = np.flatnonzero([row is not None for row in rows])
        return present, self.format.unpack([row for row in rows if row is not None])

    def _pairs(self, batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        rows = self.format.pack(batch.drop_columns([self.key]))
        return list(zip(_key_bytes(batch[self.key].to_numpy()), rows, strict=True))


class Lmdb(_KeyValue):
    """LMDB, asked for the de-duplicated keys of a chunk, in order."""

    name, package = "lmdb", "lmdb"
    note = "no cache of its own: its file lives in the operating system's, as much as there is"

    def build(self, rows: pa.RecordBatchReader) -> None:
        with self._environment() as store:
            for batch in rows:
                with store.begin(write=True) as writing, writing.cursor() as cursor:
                    cursor.putmulti(self._pairs(batch), append=True)

    def open(self) -> None:
        self._store = self._environment()
        self._reading = self._store.begin()
        self._get = self._reading.get

    def _environment(self) -> Any:
        import lmdb

        return lmdb.open(str(self.path), map_size=1 << 36, sync=False, metasync=False)

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        # One by one and copied: measured seven times faster than getmulti with buffers.
        get = self._get
        return self._unpacked([get(key) for key in _key_bytes(keys)])

    def close(self) -> None:
        self._reading.abort()
        self._store.close()


class RocksDb(_KeyValue):
    """RocksDB, asked for the de-duplicated keys of a chunk by multi-get."""

    name, package = "rocksdb", "rocksdict"
    note = "block cache of the budget, and the operating system's beside it"
    mapped: ClassVar[bool] = True
    """With R in the page cache measured 1.4 times faster than reads."""

    def build(self, rows: pa.RecordBatchReader) -> None:
        import rocksdict

        store = rocksdict.Rdict(str(self.path), self._options())
        for batch in rows:
            writing = rocksdict.WriteBatch(raw_mode=True)
            for key, row in self._pairs(batch):
                writing.put(key, row)
            store.write(writing)
        store.compact_range(None, None)
        store.close()

    def open(self) -> None:
        import rocksdict

        reading = rocksdict.AccessType.read_only()
        self._store: Any = rocksdict.Rdict(str(self.path), self._options(), access_type=reading)
        self._get = self._store.get

    def _options(self) -> Any:
        import rocksdict

        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(self.memory))
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_allow_mmap_reads(self.mapped)
        return options

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        return self._unpacked(self._store.get(_key_bytes(keys)))

    def close(self) -> None:
        self._store.close()


class RocksDbAsync(RocksDb):
    """RocksDB whose multi-get reads blocks asynchronously, past the page cache."""

    name = "rocksdb-async"
    note = "block cache of the budget, direct reads"
    mapped = False

    @classmethod
    def store(cls) -> str:
        return RocksDb.name

    def open(self) -> None:
        import rocksdict

        super().open()
        reading = rocksdict.ReadOptions()
        reading.set_async_io(True)
        self._store.set_read_options(reading)

    def _options(self) -> Any:
        options = super()._options()
        options.set_use_direct_reads(True)
        return options
