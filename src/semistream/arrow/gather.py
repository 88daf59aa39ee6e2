"""Columns of the master in output under construction: values from many pages, put together once.

Values of fixed width go straight to where they stay. Others are Arrow arrays, one for each page,
that are put together at the end, so that they exist twice for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.arrow.columns import in_place_width, is_in_place
from semistream.arrow.memory import allocate, concat, take
from semistream.arrow.types import row_width
from semistream.kernels.memory import gather_bits, gather_columns, gather_fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from semistream.arrow.page_directory import Column, PageDirectory

    Rows = npt.NDArray[np.int64]

__all__ = ["OutputColumns", "copies"]

_ONE_BLOCK = np.zeros(1 << 16, dtype=np.int32)


def copies(schema: pa.Schema) -> int:
    """Return how often the values of such columns exist while they are gathered."""
    return 1 if in_place_width(schema)[1] else 2


class OutputColumns:
    """The values of some columns, for at most ``rows`` rows.

    Examples
    --------
    >>> page = pa.record_batch({"code": [4, 7, 9], "name": ["ink", "pen", None]})
    >>> gathered = OutputColumns([pa.int64(), pa.string()], rows=10)
    >>> gathered.append(page.columns, np.array([2, 0]))
    >>> gathered.append(page.columns, np.array([1]))
    >>> [array.to_pylist() for array in gathered.arrays()]
    [[9, 4, 7], [None, 'ink', 'pen']]
    """

    def __init__(self, kinds: Sequence[pa.DataType], rows: int) -> None:
        self._columns: list[_Fixed | _Pieces] = [
            _Fixed(kind, rows) if is_in_place(kind) else _Pieces(kind) for kind in kinds
        ]
        fixed = [column for column in self._columns if isinstance(column, _Fixed)]
        self._fixed = fixed if len(fixed) == len(kinds) else []
        self._widths = np.array([column.width for column in self._fixed], dtype=np.int64)
        self._outs = np.array([column.address for column in self._fixed], dtype=np.int64)

    @classmethod
    def of(cls, arrays: Sequence[pa.Array]) -> OutputColumns:
        """Return columns that are gathered already."""
        gathered = cls([], 0)
        gathered._columns = [_Pieces(array.type, array) for array in arrays]
        return gathered

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(column.nbytes for column in self._columns)

    def append(self, source: Sequence[pa.Array], positions: Rows) -> None:
        """Take values at these positions out of arrays, one a column."""
        for column, array in zip(self._columns, source, strict=True):
            column.append(array, positions)

    def append_from(
        self, blocks: PageDirectory, block: npt.NDArray[np.int32], positions: Rows
    ) -> None:
        """Take values at these positions of these pages."""
        if self._fixed and self._append_all(blocks, block, positions):
            return
        for column, source in zip(self._columns, blocks.columns, strict=True):
            column.append_from(blocks, source, block, positions)

    def _append_all(
        self, blocks: PageDirectory, block: npt.NDArray[np.int32], positions: Rows
    ) -> bool:
        """Append to all columns in one call, if none has nulls."""
        self._fixed[0].check(len(positions))
        if any(column.has_nulls for column in self._fixed):
            return False
        done = gather_columns(
            blocks.start, blocks.offsets, blocks.value_lines, self._widths,
            block, positions, self._outs, self._fixed[0].rows,
        )  # fmt: skip
        if done:
            for column in self._fixed:
                column.rows += len(positions)
        return bool(done)

    def arrays(self) -> list[pa.Array]:
        """Return what was gathered; nothing may be appended any more."""
        return [column.array() for column in self._columns]


class _Fixed:
    """Values of fixed width, in a buffer that has room for all."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind, self._limit, self.rows = kind, rows, 0
        self.width = row_width(kind) or 0
        self._values = allocate(rows * self.width)
        self._valid: npt.NDArray[np.uint8] | None = None
        self._nulls = 0

    @property
    def address(self) -> int:
        """Where the values begin."""
        return int(self._values.address)

    def check(self, more: int) -> None:
        """Make sure that there is room: compiled code writes wherever it is told."""
        if self.rows + more > self._limit:
            msg = f"{self.rows} and {more} values have no room for {self._limit}"
            raise AssertionError(msg)

    @property
    def has_nulls(self) -> bool:
        """Whether validity is kept."""
        return self._valid is not None

    @property
    def nbytes(self) -> int:
        return self.rows * self.width + (0 if self._valid is None else self._valid.nbytes)

    def append(self, source: pa.Array, positions: Rows) -> None:
        if source.offset:
            positions = positions + source.offset
        bitmap, values = (0 if b is None else b.address for b in source.buffers())
        self._append(_NOWHERE, np.array([[bitmap], [values]]), _zeros(len(positions)), positions)

    def append_from(
        self, blocks: PageDirectory, source: Column, block: npt.NDArray[np.int32], positions: Rows
    ) -> None:
        self._append(blocks.start, blocks.offsets[source.lines], block, positions)

    def _append(
        self,
        start: Rows,
        offsets: npt.NDArray[np.integer[Any]],
        block: npt.NDArray[np.int32],
        positions: Rows,
    ) -> None:
        self.check(len(positions))
        at = self._values.address + self.rows * self.width
        gather_fixed(start, offsets[1], block, positions, self.width, at)
        if self._valid is None and offsets[0].any():
            self._valid = np.zeros(self._limit // 8 + 1, dtype=np.uint8)
            none = _zeros(self.rows)
            gather_bits(_NOWHERE, _NOWHERE, none, none, self._valid, 0)
        if self._valid is not None:
            self._nulls += gather_bits(start, offsets[0], block, positions, self._valid, self.rows)
        self.rows += len(positions)

    def array(self) -> pa.Array:
        self._values.resize(self.rows * self.width)
        valid = None if self._valid is None else pa.py_buffer(self._valid)
        return pa.Array.from_buffers(self._kind, self.rows, [valid, self._values], self._nulls)


class _Pieces:
    """Values of any type, one array for each page."""

    def __init__(self, kind: pa.DataType, *pieces: pa.Array) -> None:
        self._kind = kind
        self._pieces = list(pieces)

    @property
    def nbytes(self) -> int:
        return sum(int(piece.get_total_buffer_size()) for piece in self._pieces)

    def append(self, source: pa.Array, positions: Rows) -> None:
        self._pieces.append(take(source, pa.array(positions)))

    def append_from(
        self, blocks: PageDirectory, source: Column, block: npt.NDArray[np.int32], positions: Rows
    ) -> None:
        self._pieces.append(blocks.gather(source, block, positions))

    def array(self) -> pa.Array:
        if len(self._pieces) != 1:
            self._pieces = [concat(self._pieces) if self._pieces else pa.nulls(0, self._kind)]
        return self._pieces[0]


_NOWHERE = np.zeros(1, dtype=np.int64)


def _zeros(count: int) -> npt.NDArray[np.int32]:
    return _ONE_BLOCK[:count] if count <= len(_ONE_BLOCK) else np.zeros(count, dtype=np.int32)
