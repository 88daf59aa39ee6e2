"""Looking stream rows up in pages that lie in memory, many rows and pages in one compiled call.

Where the operating system holds a mapped master's pages, a row need not wait for its page: it is
there. A page's buffers are found by their offsets, 4 bytes each, which are noted when the page is
first asked for (and its checksum verified).
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.allocation import allocate
from semistream.columns import is_in_place
from semistream.gather import Gathered
from semistream.plain import row_width
from semistream.raw import (
    buffer_offsets,
    gather_bits,
    gather_ends,
    gather_fixed,
    gather_texts,
    locate,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from semistream.master import Master
    from semistream.master.reader import PageReader
    from semistream.output import Output
    from semistream.window import Chunk

    Blocks = npt.NDArray[np.int32]
    Rows = npt.NDArray[np.int64]
    Offsets = npt.NDArray[np.int32]

__all__ = ["Lookup", "page_faults"]

_CODES = 1  # the number of the buffer that holds a page's codes: the code column has no nulls
_TEXTS: dict[pa.DataType, type[np.integer[Any]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
_SEVERAL = -1


def page_faults() -> int:
    """Give how often this thread has waited for a mapped page to be read from disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


def _ipc_buffers(kind: pa.DataType) -> int:
    """Give how many buffers a column has in an Arrow message (Columnar.rst of the format)."""
    t = pa.types
    children = [kind.field(i).type for i in range(kind.num_fields)]
    below = sum(_ipc_buffers(child) for child in children)
    if t.is_null(kind):
        return 0
    if t.is_struct(kind) or t.is_fixed_size_list(kind) or t.is_union(kind):
        return 1 + below
    return (3 if kind in _TEXTS else 2) + below


@dataclass(frozen=True)
class _Column:
    """A column to gather, and the lines of the directory that hold its buffers' offsets."""

    kind: pa.DataType
    lines: slice


class Lookup:
    """Finds rows in the pages of a mapped master.

    Parameters
    ----------
    master
        The master, opened with ``read="mapped"``.
    reader
        Its reader.
    wanted
        The columns that are gathered.
    output
        Has room for what one call finds.
    """

    def __init__(
        self, master: Master, reader: PageReader, wanted: Iterable[str], output: Output
    ) -> None:
        self._master, self._reader, self._output = master, reader, output
        self._columns, numbers = _layout(master.page_schema, wanted)
        self._numbers = np.array(numbers)
        self._offsets = np.zeros((len(numbers), master.pages), dtype=np.int32)
        index, first = master.index, master.index.first_part
        firsts = slice(None) if first is None else first
        self._start = index.offset[firsts] + reader.address
        self._rows = index.rows[firsts]
        self._blocks = np.empty(len(output.rows), dtype=np.int32)
        self._later = np.empty(0 if first is None else len(output.rows), dtype=np.int64)

    @staticmethod
    def possible(master: Master, wanted: pa.Schema) -> bool:
        """Whether all columns are such as compiled loops can gather, from a mapped master."""
        flat = all(is_in_place(k) or k in _TEXTS or k == pa.bool_() for k in wanted.types)
        return flat and master.read == "mapped"

    @staticmethod
    def cost(master: Master, wanted: Iterable[str], rows: int) -> int:
        """Give the bytes of a directory of all pages, and of the indices of so many rows."""
        page = 12 + 4 * len(_layout(master.page_schema, wanted)[1])
        return page * master.pages + 12 * rows

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        arrays = (self._offsets, self._start, self._rows, self._blocks, self._later)
        return sum(array.nbytes for array in arrays)

    @property
    def rows(self) -> int:
        """How many rows may be looked up in one call."""
        return len(self._blocks)

    def locate(
        self, chunk: Chunk, at: tuple[int, int], once: bool, room: int
    ) -> tuple[tuple[int, int], int, int, Rows]:
        """Find rows of a chunk from ``at`` on; pairs and absent rows stand in the output's arrays.

        Returns
        -------
        tuple
            Where it stopped, how many pairs and how many absent rows there are, and which rows
            belong to pages with several parts.
        """
        output, codes = self._output, self._master.index.page_code
        out = (output.rows[:room], self._blocks, output.positions, output.absent, self._later)
        state, page = (*at, 0, 0, 0), 0
        while page >= 0:
            state, page = locate(
                chunk.codes, chunk.pages, codes, self._rows,
                self._start, self._offsets[0], state, once, out,
            )  # fmt: skip
            if page >= 0:
                self._note(int(page))
        row, position, found, missing, deferred = state
        return (row, position), found, missing, self._later[:deferred].copy()

    def _note(self, page: int) -> None:
        """Note where the buffers of a page begin."""
        parts = self._master.parts(page)
        if len(parts) > 1:
            self._offsets[:, page] = _SEVERAL
            return
        self._reader.load(parts[0], 1)  # verifies it
        buffer_offsets(int(self._start[page]), self._numbers, self._offsets[:, page])

    def gather(self, found: int) -> Gathered:
        """Take the columns of the first ``found`` pairs."""
        where = self._blocks[:found], self._output.positions[:found]
        return Gathered.of([self._gather(column, *where) for column in self._columns])

    def _gather(self, column: _Column, block: Blocks, position: Rows) -> pa.Array:
        kind, offsets = column.kind, self._offsets[column.lines]
        valid, nulls = self._bits(offsets[0], block, position)
        if kind in _TEXTS:
            buffers = self._texts(offsets, block, position, _TEXTS[kind])
        elif kind == pa.bool_():
            buffers = [pa.py_buffer(self._all_bits(offsets[1], block, position)[0])]
        else:
            width = row_width(kind) or 0
            buffers = [allocate(len(block) * width)]
            gather_fixed(self._start, offsets[1], block, position, width, buffers[0].address)
        return pa.Array.from_buffers(kind, len(block), [valid, *buffers], nulls)

    def _bits(self, offset: Offsets, block: Blocks, position: Rows) -> tuple[pa.Buffer | None, int]:
        """Give the validity of values, None where all pages that were seen have no nulls."""
        if not offset.any():
            return None, 0
        bits, zeros = self._all_bits(offset, block, position)
        return (pa.py_buffer(bits), zeros) if zeros else (None, 0)

    def _all_bits(
        self, offset: Offsets, block: Blocks, position: Rows
    ) -> tuple[npt.NDArray[np.uint8], int]:
        bits = np.zeros(-(-len(block) // 8), dtype=np.uint8)
        return bits, gather_bits(self._start, offset, block, position, bits, 0)

    def _texts(
        self,
        offsets: Offsets,
        block: Blocks,
        position: Rows,
        bound: type[np.integer[Any]],
    ) -> list[pa.Buffer]:
        ends, wide = np.empty(len(block) + 1, dtype=bound), bound is np.int64
        size = gather_ends(self._start, offsets[1], block, position, wide, ends)
        data = allocate(size)
        where = (self._start, offsets[1], offsets[2], block, position, wide)
        gather_texts(*where, data.address)
        return [pa.py_buffer(ends), data]


def _layout(page: pa.Schema, wanted: Iterable[str]) -> tuple[list[_Column], list[int]]:
    """Give the columns, and the numbers of their buffers in a page's message."""
    counts = [_ipc_buffers(kind) for kind in page.types]
    ends = np.cumsum(counts)
    columns, numbers = [], [_CODES]
    for name in wanted:
        i = page.names.index(name)
        columns.append(_Column(page.types[i], slice(len(numbers), len(numbers) + counts[i])))
        numbers += range(ends[i] - counts[i], ends[i])
    return columns, numbers
