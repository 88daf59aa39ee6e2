"""The window: the stream rows that wait for their page, in order of arrival.

One column a stream column, the rows in order of arrival (so the papers' queue Q is the order of
the rows and needs no memory of its own), each with its code, its page and its state. Rows are
chained by *page*, not by key: the master is sorted, so the page of a row is known when it arrives,
and a page, when it comes, finds exactly the rows that wait for it: those that match and those that
it proves absent. Admitting a chunk drops the rows that are gone, appends the chunk and chains anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from semistream.allocation import concat, select
from semistream.kernels import GONE, WAITING, chain_pages, first_waiting
from semistream.plain import row_width

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Chunk", "RowCost", "Window"]

_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True)
class Chunk:
    """Stream rows on their way into the window, with what was computed of them."""

    rows: pa.RecordBatch
    codes: npt.NDArray[np.int64]
    pages: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int32]
    """Bytes of each row."""

    def __len__(self) -> int:
        return len(self.codes)

    def only(self, keep: npt.NDArray[np.bool_]) -> Chunk:
        """Give the rows for which ``keep`` holds."""
        chosen = pa.array(keep)
        columns = [select(column, chosen) for column in self.rows.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.rows.schema)
        return Chunk(rows, self.codes[keep], self.pages[keep], self.sizes[keep])


@dataclass(frozen=True)
class RowCost:
    """What the window pays for a row: ``fixed`` bytes, and ``factor`` for each byte of the row.

    Code, page, state and chain take 17 bytes, the heads at most 8, sizes 4, the mark of a confirmed
    match 1. While a chunk is admitted, the column at work exists three times (as it was, without
    the rows that are gone, with the chunk), and a chunk of a quarter of the window, with its codes,
    waits beside it.

    Examples
    --------
    >>> RowCost.of(pa.schema([("key", pa.int64()), ("sale", pa.int64()), ("n", pa.int32())]))
    RowCost(width=21, fixed=50.0, factor=1.25)
    """

    width: int | None
    """Bytes of every row, or None where they vary."""
    fixed: float
    factor: float

    @classmethod
    def of(cls, schema: pa.Schema) -> RowCost:
        """Give the cost of a row of this (plain) schema."""
        widths = [row_width(field.type) for field in schema]
        known = [width for width in widths if width is not None]
        if len(known) < len(widths):
            return cls(None, fixed=38.0, factor=3.25)
        total = sum(known) + (len(known) + 7) // 8
        return cls(total, fixed=34.0 + 2 * max(8, *known, 0), factor=1.25)

    def __call__(self, rows: int, row_bytes: float) -> int:
        """Give the bytes for so many rows of so many bytes in all."""
        return int(rows * self.fixed + row_bytes * self.factor)

    def rows(self, room: int, row_bytes: float) -> int:
        """Give how many rows of this size fit."""
        return int(room // (self.fixed + self.factor * row_bytes))


class Window:
    """The rows that wait, within ``capacity`` bytes.

    Parameters
    ----------
    schema
        The stream's columns, plain.
    capacity
        Bytes for everything the window needs, admission included; it may be changed.
    pages
        How many pages the master has.
    """

    def __init__(self, schema: pa.Schema, capacity: int, pages: int) -> None:
        self.capacity = capacity
        self.cost = RowCost.of(schema)
        self.gone = 0
        self.waiting = 0
        self._schema, self._pages_of_master = schema, pages
        self._columns: list[pa.Array] = [pa.array([], field.type) for field in schema]
        self._sizes = np.empty(0, dtype=np.int32)
        self.codes = np.empty(0, dtype=np.int64)
        self.pages = np.empty(0, dtype=np.int32)
        self.state = np.empty(0, dtype=np.uint8)
        self.chain = np.empty(0, dtype=np.int32)
        self.heads = np.full(1, -1, dtype=np.int32)
        self._oldest = 0
        self._ends: list[int] = []  # where each admission's rows end
        self._arrivals: list[tuple[float, int]] = []  # when it came: time, stream rows until then

    def __len__(self) -> int:
        """Rows that are held, those gone included."""
        return len(self.state)

    @property
    def rows(self) -> pa.RecordBatch:
        """All rows that are held."""
        return pa.RecordBatch.from_arrays(self._columns, schema=self._schema)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        arrays = (self.codes, self.pages, self.state, self.chain, self.heads, self._sizes)
        columns = sum(int(column.get_total_buffer_size()) for column in self._columns)
        return sum(a.nbytes for a in arrays) + columns

    @property
    def widest(self) -> int:
        """Bytes of the largest row that is held."""
        return int(self._sizes.max(initial=0)) if self.cost.width is None else self.cost.width

    def fits(self, chunk: Chunk) -> bool:
        """Whether the chunk can be admitted without exceeding the capacity."""
        held = len(self) - self.gone
        if self.cost.width is not None:
            return (
                self.cost(held + len(chunk), (held + len(chunk)) * self.cost.width) <= self.capacity
            )
        sizes = int(self._sizes[self.state != GONE].sum()) + int(chunk.sizes.sum())
        return self.cost(held + len(chunk), sizes) <= self.capacity

    def fits_now(self) -> bool:
        """Whether the rows that are held, those gone included, are within the capacity."""
        width = self.cost.width
        sizes = int(self._sizes.sum()) if width is None else len(self) * width
        return self.cost(len(self), sizes) <= self.capacity

    def head(self, page: int) -> int:
        """Give the first row of the chain that holds this page's rows, −1 where it is empty."""
        return int(self.heads[page & (len(self.heads) - 1)])

    @property
    def oldest(self) -> int:
        """The row that has waited longest; call only while rows are waiting."""
        self._oldest = first_waiting(self.state, self._oldest)
        return self._oldest

    @property
    def oldest_time(self) -> float:
        """When the row that has waited longest arrived."""
        return self._oldest_arrival[0]

    @property
    def oldest_count(self) -> int:
        """How many stream rows there had been when the one that has waited longest arrived."""
        return self._oldest_arrival[1]

    @property
    def _oldest_arrival(self) -> tuple[float, int]:
        return self._arrivals[int(np.searchsorted(self._ends, self.oldest, side="right"))]

    @property
    def first_end(self) -> int:
        """Where the rows of the first admission end."""
        return self._ends[0]

    def leave(self, rows: int, answered: int) -> None:
        """Note that rows were answered, and how many of them left; kernels set their states."""
        self.waiting -= answered
        self.gone += rows

    def expire(self, end: int) -> npt.NDArray[np.int64]:
        """Let all rows before ``end`` leave; give those among them that were still waiting."""
        state = self.state[:end]
        waiting = np.flatnonzero(state == WAITING)
        self.leave(int(np.count_nonzero(state != GONE)), len(waiting))
        state[:] = GONE
        return waiting

    def admit(self, chunk: Chunk, time: float, count: int) -> None:
        """Drop the rows that are gone, append the chunk, chain the waiting rows anew.

        ``time`` and ``count`` say when the chunk came: by the clock, and in stream rows.
        """
        keep = self.state != GONE
        kept = int(np.count_nonzero(keep))
        self._sizes = self._joined_sizes(keep, chunk.sizes)
        self._append_columns(chunk.rows, None if kept == len(self) else pa.array(keep))
        self._move_bounds(keep, kept + len(chunk), (time, count))
        self.codes = _joined(self.codes, keep, chunk.codes)
        self.pages = _joined(self.pages, keep, chunk.pages)
        self.state = _joined(self.state, keep, np.full(len(chunk), WAITING, dtype=np.uint8))
        self.gone, self._oldest, self.waiting = 0, 0, self.waiting + len(chunk)
        self._chain()

    def _joined_sizes(
        self, keep: npt.NDArray[np.bool_], new: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int32]:
        return self._sizes if self.cost.width is not None else _joined(self._sizes, keep, new)

    def _append_columns(self, rows: pa.RecordBatch, keep: pa.Array | None) -> None:
        # One column at a time, so that only one has two copies.
        for i, new in enumerate(rows.columns):
            old = self._columns[i]
            self._columns[i] = concat([old if keep is None else select(old, keep), new])

    def _move_bounds(
        self, keep: npt.NDArray[np.bool_], end: int, arrival: tuple[float, int]
    ) -> None:
        before = np.concatenate([[0], np.cumsum(keep)])
        moved = before[np.asarray(self._ends, dtype=np.int64)]
        left = np.flatnonzero(np.diff(moved, prepend=0))  # admissions that still have rows
        self._ends = [*moved[left].tolist(), end]
        self._arrivals = [*(self._arrivals[i] for i in left), arrival]

    def _chain(self) -> None:
        wanted = min(self._pages_of_master, len(self))
        slots = 1 << max(0, (wanted - 1).bit_length())
        if slots != len(self.heads):
            self.heads = np.empty(slots, dtype=np.int32)
        self.chain = np.empty(len(self), dtype=np.int32)
        chain_pages(self.pages, self.state, self.heads, self.chain)


def _joined(
    old: npt.NDArray[_T], keep: npt.NDArray[np.bool_], new: npt.NDArray[_T]
) -> npt.NDArray[_T]:
    """Give the kept old values and the new ones in one array, with one copy."""
    kept = int(np.count_nonzero(keep))
    out = np.empty(kept + len(new), dtype=old.dtype)
    np.compress(keep, old, out=out[:kept])
    out[kept:] = new
    return out
