"""Cutting sorted rows into pages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from semistream.arrow.types import row_bytes
from semistream.errors import MasterError
from semistream.master.files.format import aligned
from semistream.master.files.index import LONGEST, IndexWriter
from semistream.master.protocol import Statistics

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Counts", "PageWriter", "ValueCount"]

_BUFFER_SLACK = 16
"""Bytes that a buffer may take beside its rows' share: padding to 8, one more offset, one bit."""


@dataclass(frozen=True)
class Counts:
    """Counts of rows, beside the lines of the index."""

    bytes: int = 0
    values: int = 0
    most_duplicates: int = 0
    null_keys: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Add counts of rows that have no join value in common."""
        return Counts(
            self.bytes + other.bytes,
            self.values + other.values,
            max(self.most_duplicates, other.most_duplicates),
            self.null_keys + other.null_keys,
        )

    def statistics(self, lines: npt.NDArray[np.void]) -> Statistics:
        """Return the statistics of the rows, with the lines of their index."""
        return Statistics(
            rows=int(lines["rows"].sum()),
            parts=len(lines),
            pages=int(lines["starts"].sum()),
            widest_row=int(lines["widest"].max(initial=0)),
            largest_part=aligned(int(lines["length"].max(initial=0))),
            **asdict(self),
        )


class PageWriter:
    """Cuts sorted rows into pages and writes them.

    A page ends where a join value ends. A join value that is too large for one page has a page to
    itself, in parts. Where the cuts fall depends on the rows alone, not on how they came in
    batches: so the same rows make the same file.
    """

    def __init__(self, file: IO[bytes], schema: pa.Schema, page_bytes: int) -> None:
        self.index = IndexWriter()
        self._file, self._page_bytes = file, page_bytes
        self._room = page_bytes - _overhead(schema)
        self._values = ValueCount()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._bytes = 0
        self._last: int | None = None  # the last code of the last part

    def add(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Take rows that follow the earlier ones; return the codes that are new with them."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes > self._page_bytes:
            self._cut(final=False)
        return self._values.add(batch.column(0).to_numpy())

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows that wait for the end of their page."""
        return self._waiting_bytes

    def finish(self) -> None:
        """Write what is left."""
        if self._waiting:
            self._cut(final=True)
            self._waiting.clear()
            self._waiting_bytes = 0

    def skip(self, lines: bytes) -> None:
        """Pass finished pages that were appended to these, with the lines of their index."""
        self.index.extend(lines)
        self._last = None

    def _cut(self, final: bool) -> None:
        """Write all whole pages of the waiting rows, and keep the rest for the next call."""
        many = len(self._waiting) > 1
        rows = pa.concat_batches(self._waiting) if many else self._waiting[0]
        codes, sizes = rows.column(0).to_numpy(), row_bytes(rows)
        ends = np.cumsum(sizes)
        start = 0
        while start < len(codes):
            used = int(ends[start - 1]) if start else 0
            fit = max(start + 1, int(np.searchsorted(ends, used + self._room, side="right")))
            if fit == len(codes) and not final:
                break
            end = self._page_end(codes, start, fit)
            self._write(rows.slice(start, end - start), sizes[start:end])
            start = end
        self._waiting = [rows.slice(start)]
        self._waiting_bytes = self._waiting[0].nbytes

    def _page_end(self, codes: npt.NDArray[np.int64], start: int, fit: int) -> int:
        """Return the end of the page that starts at ``start`` and has room up to ``fit``."""
        first = codes[start]
        if first == self._last:  # the value goes on: the rest of it, and nothing else
            return min(fit, int(np.searchsorted(codes, first, side="right")))
        if fit == len(codes) or codes[fit] != codes[fit - 1]:
            return fit
        end = int(np.searchsorted(codes, codes[fit], side="left"))
        return end if end > start else fit

    def _write(self, rows: pa.RecordBatch, sizes: npt.NDArray[np.int64]) -> None:
        # A copy: of a slice Arrow may write up to 64 bytes of a buffer behind its last row.
        data, codes = pa.concat_batches([rows]).serialize(), rows.column(0)
        if data.size > LONGEST:
            msg = f"a row of {int(sizes.max()):,} bytes is too large for a page; the most is 2 GB"
            raise MasterError(msg)
        padding = bytes(aligned(data.size) - data.size)
        content = xxhash.xxh3_64(data)
        content.update(padding)
        code, widest = codes[0].as_py(), int(sizes.max())
        starts = code != self._last
        place = (self.index.end, content.intdigest(), data.size)
        self.index.add(code, *place, rows.num_rows, widest, starts)
        self._file.write(data)
        self._file.write(padding)
        self._bytes += int(sizes.sum())
        self._last = codes[-1].as_py()

    def counts(self, null_keys: int) -> Counts:
        """Return the counts of all rows."""
        return Counts(self._bytes, self._values.values, self._values.most, null_keys)


class ValueCount:
    """Count of join values, and of the rows of the most frequent one, in sorted codes."""

    def __init__(self) -> None:
        self.values = self.most = 0
        self._last: int | None = None
        self._current = 0  # rows of the last value so far

    def add(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Take the codes that follow; return those that are new, once each."""
        if not len(codes):
            return codes
        new: npt.NDArray[np.bool_] = np.append(codes[0] != self._last, codes[1:] != codes[:-1])
        bounds = np.append(np.flatnonzero(new), len(codes))
        self._current += int(bounds[0])
        self.most = max(self.most, self._current, int(np.diff(bounds).max(initial=0)))
        if len(bounds) > 1:
            self._current = int(bounds[-1] - bounds[-2])
        self.values += len(bounds) - 1
        self._last = int(codes[-1])
        return codes[new]


def _overhead(schema: pa.Schema) -> int:
    """Bound the bytes of a page beside its rows: message header, and slack of each buffer."""
    columns = [pa.nulls(0, field.type) for field in schema]
    header = pa.RecordBatch.from_arrays(columns, schema=schema).serialize().size
    return int(header) + _BUFFER_SLACK * sum(len(column.buffers()) for column in columns)
