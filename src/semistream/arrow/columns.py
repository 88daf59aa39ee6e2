"""Columns that change in place: rows leave and others follow without a second copy.

Values of fixed width lie in an `Arena`, a mapping of which only the part in use is memory, and are
moved together in place. Values of varying width are Arrow arrays that are made anew.
"""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import concat, private_memory, select
from semistream.arrow.types import row_width
from semistream.kernels.chains import GONE, compact

if TYPE_CHECKING:
    import numpy.typing as npt

    State = npt.NDArray[np.uint8]

__all__ = ["Arena", "in_place_width", "is_in_place", "make_column", "varying_room"]

_MOST_VARYING = (1 << 31) - (1 << 24)  # bytes: the offsets of an Arrow array have 32 bits
_WIDE_OFFSETS = {pa.large_string(), pa.large_binary()}


class Arena:
    """An array with room for ``limit`` rows; memory is what its rows need, to a page of 4 KB.

    Examples
    --------
    >>> numbers = Arena(np.int64, limit=1_000_000)
    >>> numbers.replace(np.empty(0, np.uint8), 0, np.arange(3)).tolist()
    [0, 1, 2]
    >>> numbers.replace(np.array([0, 2, 0], np.uint8), 2, np.array([7])).tolist()
    [0, 2, 7]
    >>> numbers.nbytes
    24
    """

    def __init__(self, dtype: npt.DTypeLike, limit: int, width: int = 1) -> None:
        size = limit * width * np.dtype(dtype).itemsize
        self._memory = private_memory(max(1, size))
        values = np.frombuffer(self._memory, dtype=dtype, count=limit * width)
        self._values: npt.NDArray[Any] = values.reshape(limit, width) if width > 1 else values
        self._row_bytes = width * np.dtype(dtype).itemsize
        self.nbytes = 0

    def replace(self, state: State, kept: int, new: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Drop the rows that are gone, of which ``kept`` stay, and append; return all rows."""
        if kept < len(state):
            compact(self._values[: len(state)], state)
        self._values[kept : kept + len(new)] = new
        return self.use(kept + len(new))

    def use(self, rows: int) -> npt.NDArray[Any]:
        """Return so many rows; memory behind them goes back to the operating system."""
        size = rows * self._row_bytes
        end = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if self.nbytes > end:
            self._memory.madvise(mmap.MADV_DONTNEED, end, self.nbytes - end)
        self.nbytes = size
        return self._values[:rows]


def in_place_width(schema: pa.Schema) -> tuple[int, bool]:
    """Return the bytes of a row that change in place, and whether all of them do."""
    kinds = [field.type for field in schema]
    in_place = [kind for kind in kinds if is_in_place(kind)]
    return sum(row_width(kind) or 0 for kind in in_place), len(in_place) == len(kinds)


def is_in_place(kind: pa.DataType) -> bool:
    """Whether values of a plain type have whole bytes of their own, always as many."""
    primitive = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return bool(primitive or pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind))


def varying_room(schema: pa.Schema) -> float:
    """Return the most bytes of varying width that rows of a plain schema may have together.

    Examples
    --------
    >>> varying_room(pa.schema([("id", pa.int64())]))
    inf
    >>> varying_room(pa.schema([("id", pa.int64()), ("name", pa.string())])) < 2**31
    True
    """
    varying = {field.type for field in schema if row_width(field.type) is None}
    return _MOST_VARYING if varying - _WIDE_OFFSETS else math.inf


class _FixedColumn:
    """Values of fixed width, in an arena; a byte a row for nulls once there are any."""

    def __init__(self, kind: pa.DataType, limit: int) -> None:
        width = row_width(kind) or 0
        word = next(size for size in (8, 4, 2, 1) if width % size == 0)
        self._kind, self._limit, self._words = kind, limit, width // word
        self._dtype = np.dtype(f"u{word}")
        self._values = Arena(self._dtype, limit, self._words)
        self._valid: Arena | None = None
        self._bitmap = np.empty(0, dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return (
            self._values.nbytes + self._bitmap.nbytes + (self._valid.nbytes if self._valid else 0)
        )

    def replace(self, state: State, kept: int, new: pa.Array) -> pa.Array:
        rows = kept + len(new)
        values = self._values.replace(state, kept, self._raw(new))
        bitmap = self._replace_valid(state, kept, new)
        return pa.Array.from_buffers(self._kind, rows, [bitmap, pa.py_buffer(values)])

    def _raw(self, array: pa.Array) -> npt.NDArray[Any]:
        start, end = array.offset * self._words, (array.offset + len(array)) * self._words
        data = np.frombuffer(array.buffers()[1] or b"", dtype=self._dtype, count=end)[start:]
        return data.reshape(-1, self._words) if self._words > 1 else data

    def _replace_valid(self, state: State, kept: int, new: pa.Array) -> pa.Buffer | None:
        if self._valid is None:
            if not new.null_count:
                return None
            self._valid = Arena(np.uint8, self._limit)
            self._valid.replace(state[:0], 0, np.ones(len(state), dtype=np.uint8))
        fresh = new.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        valid = self._valid.replace(state, kept, fresh)
        self._bitmap = np.packbits(valid, bitorder="little")
        return pa.py_buffer(self._bitmap)


class _ArrowColumn:
    """Values of varying width, as one Arrow array that is made anew."""

    def __init__(self, kind: pa.DataType) -> None:
        self._array = pa.nulls(0, kind)

    @property
    def nbytes(self) -> int:
        return int(self._array.get_total_buffer_size())

    def replace(self, state: State, kept: int, new: pa.Array) -> pa.Array:
        old = self._array if kept == len(state) else select(self._array, pa.array(state != GONE))
        self._array = concat([old, new])
        return self._array


def make_column(kind: pa.DataType, limit: int) -> _FixedColumn | _ArrowColumn:
    """Return a column of the window or of a cache, for values of a plain type.

    Its ``replace`` drops the rows that are gone, appends, and returns all rows; what an earlier
    call returned is not valid any more.
    """
    return _FixedColumn(kind, limit) if is_in_place(kind) else _ArrowColumn(kind)
