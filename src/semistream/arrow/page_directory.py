"""Pages in memory, known by where their buffers lie: what compiled gathers take values from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.arrow.columns import is_in_place
from semistream.arrow.memory import allocate
from semistream.arrow.types import row_width
from semistream.kernels.memory import (
    buffer_offsets,
    gather_bits,
    gather_ends,
    gather_fixed,
    gather_rows,
    gather_texts,
    note_pages,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from semistream.arrow.recycle import BufferPool

    Numbers = npt.NDArray[np.int32]
    Rows = npt.NDArray[np.int64]

__all__ = ["Column", "PageDirectory", "layout"]

_CODES = 1  # the number of the buffer that holds a page's codes: the code column has no nulls
_TEXTS: dict[pa.DataType, type[np.integer[Any]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}


@dataclass(frozen=True)
class Column:
    """A column to gather, and the lines of the directory that hold its buffers' offsets."""

    number: int
    kind: pa.DataType
    lines: slice
    in_place: bool
    """Whether its values have a fixed width."""


class PageDirectory:
    """A directory of ``count`` pages: the address of each, and the offsets of its buffers.

    Parameters
    ----------
    page
        The schema of a page.
    wanted
        The names of the columns that are gathered.
    count
        How many pages there may be.
    shared
        Zeros, or what another process has noted of the same pages, as many as `shared_bytes` says;
        where pages lie is then for the caller to fill in.
    """

    def __init__(
        self,
        page: pa.Schema,
        wanted: Sequence[str],
        count: int,
        shared: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        self.columns, numbers = layout(page, wanted)
        self.value_lines = np.array([column.lines.start + 1 for column in self.columns], np.int64)
        """Of each column the line of ``offsets`` that has its values; validity is before it."""
        self._fixed = [column for column in self.columns if column.in_place]
        self._fixed_lines = self.value_lines[[column.number for column in self._fixed]]
        self._widths = np.array([row_width(c.kind) or 0 for c in self._fixed], np.int64)
        self._numbers = np.array(numbers)
        self.start = np.zeros(count, dtype=np.int64)
        if shared is None:
            shared = np.zeros(self.shared_bytes(page, wanted, count), dtype=np.uint8)
        offsets = 4 * len(numbers) * count
        self.offsets = shared[:offsets].view(np.int32).reshape(len(numbers), count)
        self._nulls = shared[offsets:].view(np.bool_)  # whether a page was seen to have any

    @staticmethod
    def possible(wanted: pa.Schema) -> bool:
        """Whether all columns are such as compiled loops can gather."""
        return all(is_in_place(k) or k in _TEXTS or k == pa.bool_() for k in wanted.types)

    @staticmethod
    def cost(page: pa.Schema, wanted: Iterable[str]) -> int:
        """Return the bytes that the directory takes for a page."""
        return 8 + 4 * len(layout(page, wanted)[1])

    @staticmethod
    def shared_bytes(page: pa.Schema, wanted: Iterable[str], count: int) -> int:
        """Return the bytes that do not depend on where pages lie."""
        columns, numbers = layout(page, wanted)
        return 4 * len(numbers) * count + len(columns)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self.start.nbytes + self.offsets.nbytes

    @property
    def codes(self) -> Numbers:
        """Where the codes of each page begin."""
        codes: Numbers = self.offsets[0]
        return codes

    def codes_at(self, address: int) -> int:
        """Return where the codes of a page lie, an Arrow message that begins at this address."""
        found = np.empty(len(self._numbers), dtype=np.int32)
        buffer_offsets(address, self._numbers, found, self.value_lines, self._nulls)
        return address + int(found[0])

    def note(self, first: int, addresses: Rows) -> None:
        """Note pages from number ``first`` on, Arrow messages that begin at these addresses."""
        self.start[first : first + len(addresses)] = addresses
        note_pages(addresses, self._numbers, self.offsets, first, self.value_lines, self._nulls)

    def enter(self, block: int, address: int, offsets: Sequence[Sequence[int]]) -> None:
        """Note what is known already: where the buffers of the codes and of each column begin."""
        self.start[block] = address
        codes, *columns = offsets
        self.offsets[:, block] = [codes[_CODES], *(each for column in columns for each in column)]
        self._nulls[:] |= np.array([column[0] != 0 for column in columns], dtype=np.bool_)

    def gather_all(self, block: Numbers, position: Rows, memory: BufferPool) -> list[pa.Array]:
        """Take all columns' values at these positions of these pages."""
        rows, widths = len(block), self._widths
        values = [memory.take(i, rows * width) for i, width in enumerate(widths.tolist())]
        outs = np.array([buffer.address for buffer in values], dtype=np.int64)
        gather_rows(self.start, self.offsets, self._fixed_lines, widths, block, position, outs, 0)
        arrays = []
        for column in self.columns:
            if column.in_place:
                valid, nulls = self._valid(column, block, position)
                buffers = [valid, values.pop(0)]
                arrays.append(pa.Array.from_buffers(column.kind, rows, buffers, nulls))
            else:
                arrays.append(self.gather(column, block, position))
        return arrays

    def gather(self, column: Column, block: Numbers, position: Rows) -> pa.Array:
        """Take a column's values at these positions of these pages."""
        kind, offsets = column.kind, self.offsets[column.lines]
        valid, nulls = self._valid(column, block, position)
        if kind in _TEXTS:
            buffers = self._texts(offsets, block, position, _TEXTS[kind])
        elif kind == pa.bool_():
            buffers = [pa.py_buffer(self._bits(offsets[1], block, position)[0])]
        else:
            width = row_width(kind) or 0
            buffers = [allocate(len(block) * width)]
            gather_fixed(self.start, offsets[1], block, position, width, buffers[0].address)
        return pa.Array.from_buffers(kind, len(block), [valid, *buffers], nulls)

    def _valid(
        self, column: Column, block: Numbers, position: Rows
    ) -> tuple[pa.Buffer | None, int]:
        """Return the validity of values, None where none of these is null."""
        if not self._nulls[column.number]:
            return None, 0
        bits, zeros = self._bits(self.offsets[column.lines.start], block, position)
        return (pa.py_buffer(bits), zeros) if zeros else (None, 0)

    def _bits(
        self, offset: Numbers, block: Numbers, position: Rows
    ) -> tuple[npt.NDArray[np.uint8], int]:
        bits = np.zeros(-(-len(block) // 8), dtype=np.uint8)
        return bits, gather_bits(self.start, offset, block, position, bits, 0)

    def _texts(
        self,
        offsets: Numbers,
        block: Numbers,
        position: Rows,
        bound: type[np.integer[Any]],
    ) -> list[pa.Buffer]:
        ends, wide = np.empty(len(block) + 1, dtype=bound), bound is np.int64
        data = allocate(gather_ends(self.start, offsets[1], block, position, wide, ends))
        where = (self.start, offsets[1], offsets[2], block, position, wide)
        gather_texts(*where, data.address)
        return [pa.py_buffer(ends), data]


def layout(page: pa.Schema, wanted: Iterable[str]) -> tuple[list[Column], list[int]]:
    """Return the columns, and the numbers of their buffers in a page's message."""
    counts = [_ipc_buffers(kind) for kind in page.types]
    ends = np.cumsum(counts).tolist()
    columns: list[Column] = []
    numbers = [_CODES]
    for name in wanted:
        i = page.names.index(name)
        lines = slice(len(numbers), len(numbers) + counts[i])
        kind = page.types[i]
        columns.append(Column(len(columns), kind, lines, is_in_place(kind)))
        numbers += range(ends[i] - counts[i], ends[i])
    return columns, numbers


def _ipc_buffers(kind: pa.DataType) -> int:
    """Return how many buffers a column has in an Arrow message (Columnar.rst of the format)."""
    t = pa.types
    below = sum(_ipc_buffers(kind.field(i).type) for i in range(kind.num_fields))
    if t.is_null(kind):
        return 0
    if t.is_struct(kind) or t.is_fixed_size_list(kind) or t.is_union(kind):
        return 1 + below
    return (3 if kind in _TEXTS else 2) + below
