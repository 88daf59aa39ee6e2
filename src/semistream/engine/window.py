"""The window: the stream rows that wait for their page, in order of arrival.

One column a stream column, the rows in order of arrival (so the papers' queue Q is the order of
the rows and needs no memory of its own), each with its code, its page and its state. Rows are
chained by *page*, not by key: the master is sorted, so the page of a row is known when it arrives,
and a page, when it comes, finds exactly the rows that wait for it: those that match and those that
it proves absent. A chunk is appended; when the window is full, the rows that are left are moved
together, in place, as soon as a quarter of all is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.columns import Arena, in_place_width, make_column, varying_room
from semistream.arrow.memory import select
from semistream.arrow.types import row_width
from semistream.kernels.chains import GONE, WAITING, chain_pages, first_waiting

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Chunk", "RowCost", "Window", "same_sizes"]

_MOST_ARRIVALS = 65  # remembered; an odd number, so that halving keeps both ends


@cache  # to make such a view takes 3 µs, to cut it 0.2
def _one_size(width: int) -> npt.NDArray[np.int32]:
    return np.broadcast_to(np.int32(width), 1 << 48)


def same_sizes(width: int, rows: int) -> npt.NDArray[np.int32]:
    """Return the sizes of rows that all have so many bytes: one number in memory.

    Examples
    --------
    >>> same_sizes(20, rows=3).tolist()
    [20, 20, 20]
    """
    return _one_size(width)[:rows]


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

    @property
    def widest(self) -> int:
        """Bytes of the largest row; call only if there is one."""
        return int(self.sizes.max() if self.sizes.strides[0] else self.sizes[0])

    @property
    def none(self) -> Chunk:
        """None of the rows."""
        return Chunk(self.rows.slice(0, 0), self.codes[:0], self.pages[:0], self.sizes[:0])

    def only(self, keep: npt.NDArray[np.bool_]) -> Chunk:
        """Return the rows for which ``keep`` holds."""
        if not keep.any():
            return self.none
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
    admission, with its codes. Columns that do not change in place are made anew at each admission
    and then exist three times: as they were, without the rows that are gone, and with the chunk.

    Examples
    --------
    >>> sales = pa.schema([("key", pa.int64()), ("sale", pa.int64()), ("n", pa.int32())])
    >>> cost = RowCost.of(sales, pages=2000, exact=True)
    >>> cost.width, cost(100_000, 100_000 * cost.width), cost.rows(1 << 20, cost.width)
    (21, 5478500, 18902)
    """

    width: int | None
    """Bytes of every row, or None where they vary."""
    assumed: int
    """Bytes that a row is taken to have before any is seen: 32 for a value that varies."""
    least: int
    """Bytes that every row has."""
    fixed: float
    factor: float
    heads: int
    """Pages of the master."""
    exact: bool
    """Whether codes are exact; where not, a row has a mark that it found a true match."""
    most: float
    """Bytes of varying width that all rows may have together; see `varying_room`."""

    @classmethod
    def of(cls, schema: pa.Schema, pages: int, exact: bool) -> RowCost:
        """Return the cost of a row of this (plain) schema."""
        widths = [row_width(field.type) for field in schema]
        known = sum(width for width in widths if width is not None) + (len(schema) + 7) // 8
        in_place, all_in_place = in_place_width(schema)
        fixed, factor = 25.0 + (0 if exact else 1) + 1.125 * len(schema), 1.25
        if not all_in_place:  # in place once, the rest three times, and a quarter of both waits
            fixed, factor = fixed - 2 * in_place, 3.25
        if None not in widths:
            return cls(known, known, known, fixed, factor, pages, exact, varying_room(schema))
        assumed = known + 32 * widths.count(None)
        most = varying_room(schema)
        return cls(None, assumed, in_place, fixed + 4, factor, pages, exact, most)

    def __call__(self, rows: int, row_bytes: float) -> int:
        """Return the bytes for so many rows of so many bytes in all."""
        return int(rows * self.fixed + row_bytes * self.factor) + 8 * min(rows, self.heads)

    def rows(self, room: int, row_bytes: float) -> int:
        """Return how many rows of this size fit."""
        each = self.fixed + self.factor * row_bytes
        few = int(room // (each + 8))
        fit = few if few <= self.heads else int((room - 8 * self.heads) // each)
        varying = row_bytes - self.least
        return int(min(fit, self.most / varying)) if varying > 0 else fit

    def fit(self, rows: int, row_bytes: float, room: int) -> bool:
        """Whether so many rows of so many bytes in all have room."""
        return self(rows, row_bytes) <= room and row_bytes - rows * self.least <= self.most

    @property
    def largest(self) -> float:
        """The most bytes of a window whatever its rows are; one of narrow rows may have more."""
        return self.factor * self.most


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
        limit = cost.rows(capacity, cost.least) + 1
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
            "confirmed": Arena(np.bool_, 0 if cost.exact else limit),
        }
        self.codes, self.pages, self.state, self.chain, self._sizes, self.confirmed = (
            arena.use(0) for arena in self._arenas.values()
        )
        self.heads = np.full(1, -1, dtype=np.int32)
        self.dropped = 0
        """How many rows have left the window's arrays so far."""
        self._widest = 0
        self._bytes = 0  # of all rows that are held
        self._oldest = 0
        self._ends: list[int] = []  # where each admission's rows end
        self._arrivals: list[tuple[float, int]] = []  # when it came: time, stream rows until then

    def __len__(self) -> int:
        """Rows that are held, those gone included."""
        return len(self.state)

    @property
    def is_empty(self) -> bool:
        """Whether all rows that are held are gone."""
        return self.gone == len(self)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        arrays = sum(arena.nbytes for arena in self._arenas.values())
        return self.heads.nbytes + arrays + sum(column.nbytes for column in self._columns)

    @property
    def widest(self) -> int:
        """Bytes of the largest row that is held."""
        return self._widest if self.cost.width is None else self.cost.width

    @property
    def free(self) -> int:
        """Bytes that are left behind the last row."""
        return self.capacity - self.cost(len(self), self._bytes)

    def can_admit(self, chunk: Chunk) -> bool:
        """Whether the chunk has room behind the last row, or where at least a quarter is gone."""
        return self._can_append(chunk) or (4 * self.gone >= len(self) and self._fits(chunk))

    def _can_append(self, chunk: Chunk) -> bool:
        rows = len(self) + len(chunk)
        return self.cost.fit(rows, self._bytes + int(chunk.sizes.sum()), self.capacity)

    def _fits(self, chunk: Chunk) -> bool:
        """Whether the chunk has room when the rows that are gone have made way."""
        rows, new = len(self) - self.gone + len(chunk), int(chunk.sizes.sum())
        if self.cost.width is not None:
            return self.cost.fit(rows, rows * self.cost.width, self.capacity)
        kept = int(self._sizes[self.state != GONE].sum())
        return self.cost.fit(rows, kept + new, self.capacity)

    def fits_now(self) -> bool:
        """Whether the rows that are held, those gone included, are within the capacity."""
        return self.cost(len(self), self._bytes) <= self.capacity

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

    def arrived_by(self, count: int) -> int:
        """Return how many of the first rows arrived when there had been ``count`` stream rows."""
        entries = sum(arrival <= count for _, arrival in self._arrivals)
        return self._ends[entries - 1] if entries else 0

    def leave(self, rows: int, answered: int) -> None:
        """Note that rows were answered, and how many of them left; kernels set their states."""
        self.waiting -= answered
        self.gone += rows

    def expire(self, end: int) -> npt.NDArray[np.int64]:
        """Remove all rows before ``end``; return those among them that were still waiting."""
        state = self.state[:end]
        waiting = np.flatnonzero(state == WAITING)
        self.leave(int(np.count_nonzero(state != GONE)), len(waiting))
        state[:] = GONE
        return waiting

    def admit(self, chunk: Chunk, time: float, count: int) -> None:
        """Append the chunk and chain its rows; the rows that are gone make way if they must.

        ``time`` and ``count`` say when the chunk came: by the clock, and in stream rows.
        """
        if not self._can_append(chunk):
            self._drop_gone()
        start, state = len(self), self.state
        self._replace(state, start, chunk)
        waiting = np.full(len(chunk), WAITING, dtype=np.uint8)
        self.state = self._arenas["state"].replace(state, start, waiting)
        self.waiting += len(chunk)
        self._bytes += int(chunk.sizes.sum())
        self._ends.append(len(self))
        self._arrivals.append((time, count))
        if len(self._ends) > _MOST_ARRIVALS:  # of two neighbours, the earlier time counts
            self._ends = [*self._ends[1:-1:2], self._ends[-1]]
            self._arrivals = self._arrivals[::2]
        self._chain(start)

    def _drop_gone(self) -> None:
        """Move the rows that are left together."""
        state, kept = self.state, len(self) - self.gone
        counts = [np.count_nonzero(rows != GONE) for rows in np.split(state, self._ends)[:-1]]
        left = np.flatnonzero(counts)  # admissions that still have rows
        self._ends = np.cumsum(counts, dtype=np.int64)[left].tolist()
        self._arrivals = [self._arrivals[i] for i in left]
        none = np.empty(0, dtype=np.int32)
        self._replace(state, kept, Chunk(self.rows.slice(0, 0), self.codes[:0], none, none))
        self.state = self._arenas["state"].replace(state, kept, state[:0])
        self.dropped += self.gone
        self.gone, self._oldest = 0, 0
        self._bytes = int(self._sizes.sum()) if self.cost.width is None else kept * self.cost.width
        self._chain(0)

    def _replace(self, state: npt.NDArray[np.uint8], kept: int, new: Chunk) -> None:
        """Drop the rows that are gone, unless all are kept, and append; states change later."""
        columns = [
            column.replace(state, kept, values)
            for column, values in zip(self._columns, new.rows.columns, strict=True)
        ]
        self.rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.codes = self._arenas["codes"].replace(state, kept, new.codes)
        self.pages = self._arenas["pages"].replace(state, kept, new.pages)
        if self.cost.width is None:
            self._sizes = self._arenas["sizes"].replace(state, kept, new.sizes)
            self._widest = int(self._sizes.max(initial=0))
        if not self.cost.exact:
            unknown = np.zeros(len(new), dtype=np.bool_)
            self.confirmed = self._arenas["confirmed"].replace(state, kept, unknown)

    def _chain(self, start: int) -> None:
        """Chain the rows from ``start`` on, or all where there are more heads to have."""
        wanted = min(self.cost.heads, len(self))
        slots = 1 << max(0, (wanted - 1).bit_length())
        if start == 0 or slots > len(self.heads):
            self.heads = np.full(slots, -1, dtype=np.int32)
            start = 0
        self.chain = self._arenas["chain"].use(len(self))
        chain_pages(self.pages, self.state, self.heads, self.chain, start)
