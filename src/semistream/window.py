"""The window: the stream rows that wait for their page, in order of arrival.

One column a stream column, the rows in order of arrival (so the papers' queue Q is the order of
the rows and needs no memory of its own), each with its code, its page and its state. Rows are
chained by *page*, not by key: the master is sorted, so the page of a row is known when it arrives,
and a page, when it comes, finds exactly the rows that wait for it: those that match and those that
it proves absent. Admitting a chunk moves the rows that are left together, in place, appends the
chunk and chains anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.allocation import select
from semistream.columns import Arena, make_column
from semistream.kernels import GONE, WAITING, chain_pages, first_waiting
from semistream.plain import row_width

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Chunk", "RowCost", "Window"]


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
    """What the window pays for rows.

    A row takes ``fixed`` bytes and ``factor`` for each byte of its own; heads take at most 8 bytes
    a row, and at most 8 a page of the master. Code, page, state and chain are 17 of the fixed
    bytes, nulls 9/8 a column; the rest is a chunk of a quarter of the window that waits for
    admission, with its codes. Columns of varying width are made anew at each admission and then
    exist three times: as they were, without the rows that are gone, and with the chunk.

    Examples
    --------
    >>> sales = pa.schema([("key", pa.int64()), ("sale", pa.int64()), ("n", pa.int32())])
    >>> cost = RowCost.of(sales, pages=2000, exact=True)
    >>> cost, cost(100_000, 100_000 * cost.width), cost.rows(1 << 20, cost.width)
    (RowCost(width=21, fixed=28.375, factor=1.25, heads=2000), 5478500, 18902)
    """

    width: int | None
    """Bytes of every row, or None where they vary."""
    fixed: float
    factor: float
    heads: int
    """Pages of the master."""

    @classmethod
    def of(cls, schema: pa.Schema, pages: int, exact: bool) -> RowCost:
        """Give the cost of a row of this (plain) schema; exact keys need no mark of a match."""
        widths = [row_width(field.type) for field in schema]
        known = [width for width in widths if width is not None]
        fixed = 25.0 + (0 if exact else 1) + 1.125 * len(schema)
        if len(known) < len(widths):
            return cls(None, fixed + 4, 3.25, pages)
        return cls(sum(known) + (len(known) + 7) // 8, fixed, 1.25, pages)

    def __call__(self, rows: int, row_bytes: float) -> int:
        """Give the bytes for so many rows of so many bytes in all."""
        return int(rows * self.fixed + row_bytes * self.factor) + 8 * min(rows, self.heads)

    def rows(self, room: int, row_bytes: float) -> int:
        """Give how many rows of this size fit."""
        each = self.fixed + self.factor * row_bytes
        few = int(room // (each + 8))
        return few if few <= self.heads else int((room - 8 * self.heads) // each)


class Window:
    """The rows that wait, within ``capacity`` bytes.

    Parameters
    ----------
    schema
        The stream's columns, plain.
    capacity
        Bytes for everything the window needs, admission included; it may be changed.
    cost
        What it pays for a row.
    """

    def __init__(self, schema: pa.Schema, capacity: int, cost: RowCost) -> None:
        self.capacity = capacity
        self.cost = cost
        self.gone = 0
        self.waiting = 0
        limit = cost.rows(capacity, cost.width or 0) + 1
        self._schema = schema
        self._columns = [make_column(field.type, limit) for field in schema]
        self.rows = pa.RecordBatch.from_pylist([], schema=schema)
        """All rows that are held."""
        self._arenas = {
            "codes": Arena(np.int64, limit),
            "pages": Arena(np.int32, limit),
            "state": Arena(np.uint8, limit),
            "chain": Arena(np.int32, limit),
            "sizes": Arena(np.int32, limit if cost.width is None else 0),
        }
        self.codes, self.pages, self.state, self.chain, self._sizes = (
            arena.use(0) for arena in self._arenas.values()
        )
        self.heads = np.full(1, -1, dtype=np.int32)
        self._mean_size = 0.0
        self._oldest = 0
        self._ends: list[int] = []  # where each admission's rows end
        self._arrivals: list[tuple[float, int]] = []  # when it came: time, stream rows until then

    def __len__(self) -> int:
        """Rows that are held, those gone included."""
        return len(self.state)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        arrays = sum(arena.nbytes for arena in self._arenas.values())
        return self.heads.nbytes + arrays + sum(column.nbytes for column in self._columns)

    @property
    def widest(self) -> int:
        """Bytes of the largest row that is held."""
        return int(self._sizes.max(initial=0)) if self.cost.width is None else self.cost.width

    def fits(self, chunk: Chunk) -> bool:
        """Whether the chunk can be admitted without exceeding the capacity."""
        held, width = len(self) - self.gone, self.cost.width
        rows = held + len(chunk)
        if width is not None:
            return self.cost(rows, rows * width) <= self.capacity
        new = int(chunk.sizes.sum())
        if self.cost(rows, held * self._mean_size + new) > self.capacity:
            return False  # most likely so; to know for certain takes a look at every row
        sizes = int(self._sizes[self.state != GONE].sum()) + new
        return self.cost(rows, sizes) <= self.capacity

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

    def end_of(self, admission: int) -> int:
        """Give where the rows of an admission end; 0 is the first that had rows at the last one."""
        return self._ends[admission]

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
        state, kept = self.state, len(self) - self.gone
        self._move_bounds(kept + len(chunk), (time, count))
        columns = [
            column.replace(state, kept, new)
            for column, new in zip(self._columns, chunk.rows.columns, strict=True)
        ]
        self.rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.codes = self._arenas["codes"].replace(state, kept, chunk.codes)
        self.pages = self._arenas["pages"].replace(state, kept, chunk.pages)
        if self.cost.width is None:
            self._sizes = self._arenas["sizes"].replace(state, kept, chunk.sizes)
            self._mean_size = float(self._sizes.mean())
        waiting = np.full(len(chunk), WAITING, dtype=np.uint8)
        self.state = self._arenas["state"].replace(state, kept, waiting)  # last: others need it
        self.gone, self._oldest, self.waiting = 0, 0, self.waiting + len(chunk)
        self._chain()

    def _move_bounds(self, end: int, arrival: tuple[float, int]) -> None:
        counts = [np.count_nonzero(rows != GONE) for rows in np.split(self.state, self._ends)[:-1]]
        left = np.flatnonzero(counts)  # admissions that still have rows
        self._ends = [*np.cumsum(counts, dtype=np.int64)[left].tolist(), end]
        self._arrivals = [*(self._arrivals[i] for i in left), arrival]

    def _chain(self) -> None:
        wanted = min(self.cost.heads, len(self))
        slots = 1 << max(0, (wanted - 1).bit_length())
        if slots != len(self.heads):
            self.heads = np.empty(slots, dtype=np.int32)
        self.chain = self._arenas["chain"].use(len(self))
        chain_pages(self.pages, self.state, self.heads, self.chain)
