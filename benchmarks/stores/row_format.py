"""Rows as bytes, and back: what a key-value store holds for a key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["RowFormat", "pieces"]


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
        """Give the bytes of each row."""
        packed = np.empty(rows.num_rows, self.dtype)
        for name, column in zip(self.fixed.names, rows.columns, strict=False):
            start = column.offset * self.dtype[name].itemsize
            packed[name] = np.frombuffer(column.buffers()[1], self.dtype[name], len(column), start)
        if not self.has_text:
            return pieces(packed)
        texts = rows.columns[-1].cast(pa.binary()).to_pylist()
        return [row + text for row, text in zip(pieces(packed), texts, strict=True)]

    def row(self, packed: bytes) -> tuple[Any, ...]:
        """Give one row as Python's values."""
        width = self.dtype.itemsize
        found = np.frombuffer(packed[:width], self.dtype)[0].item()
        return (*found, packed[width:].decode()) if self.has_text else found

    def unpack(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        """Give the rows whose bytes these are."""
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
    """Give the bytes of each value."""
    found: list[bytes] = values.view(f"V{values.itemsize}").tolist()
    return found
