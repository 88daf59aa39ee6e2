"""Ranges of a key in the place of pages, for the algorithms that want these.

The borders are found once; the table lives on, and a page is what the database has between two
borders at the moment it is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.allocation import concat_rows
from semistream.errors import StoreError
from semistream.master.database.fetch import page
from semistream.master.format import aligned
from semistream.master.index import Index
from semistream.master.reader import PageReader
from semistream.plain import row_bytes
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semistream.master.database.master import DatabaseMaster

__all__ = ["LEAST", "RangeReader", "paged_index"]

LEAST = -(2**63)
"""The least code."""
_ROOM = 3  # times what a range has: as it comes, as columns, as a message; or less, and it grows
_HEAD = 4096  # bytes of a message beside its rows
_PIECE = 1 << 20
LARGE = 20_000_000
"""Rows from which on borders are estimated, for to count them would take long."""


def paged_index(master: DatabaseMaster) -> DatabaseMaster:
    """Find the borders of ranges of about a page each; give the master with these as pages."""
    every = max(1, int(master.manifest.page_bytes / max(1.0, master.row_bytes)))
    borders, numbers = _borders(master, every)
    codes, first = np.unique(borders, return_index=True)
    firsts = numbers[first]
    known = int(numbers[-1]) - 1 + every if len(numbers) else 0
    rows = np.diff(firsts, append=max(known, int(firsts[-1]) + 1) + 1) if len(firsts) else firsts
    codes = codes.copy()
    if len(codes):
        codes[0] = LEAST  # whatever comes before the first border belongs to its range
    pages = len(codes)
    widest = max(1, master.statistics.widest_row)
    index = Index(
        code=codes,
        page_code=codes,
        offset=np.arange(pages, dtype=np.int64),
        checksum=np.zeros(pages, dtype=np.uint64),
        length=np.zeros(pages, dtype=np.int32),
        rows=rows.astype(np.int32),
        widest=np.full(pages, widest, dtype=np.int32),
        first_part=None,
    )
    largest = _ROOM * aligned(int(rows.max(initial=1) * (master.row_bytes + 8)) + _HEAD)
    statistics = replace(
        master.statistics, rows=known, pages=pages, parts=pages, largest_part=largest
    )
    return replace(master, index=index, manifest=replace(master.manifest, statistics=statistics))


def _borders(master: DatabaseMaster, every: int) -> tuple[Any, Any]:
    """Ask for borders: codes, and the number of the row at each."""
    if master.rows > LARGE:
        return _estimated(master, every)
    statement = master.store.dialect.borders(master.table, every)
    pieces = list(master.store.rows(statement, master.table.keys, _PIECE, -1))
    if not pieces:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    keys, numbers = (pa.concat_arrays([piece[i] for piece in pieces]) for i in (0, 1))
    codes = master.keys.encode([keys])  # MySQL's zero comes first, and is no date
    return np.where(codes.valid, codes.values, LEAST), numbers.to_numpy()


def _estimated(master: DatabaseMaster, every: int) -> tuple[Any, Any]:
    """Take borders between keys that are known to have about as many rows between them."""
    store, table = master.store, master.table
    bounds = store.ask(lambda connection: store.dialect.bounds(connection, table))
    codes = master.keys.encode([pa.array(bounds, table.keys[0].kind)]).values
    if not len(codes):
        return codes, codes
    pages = max(1, -(-master.rows // every))
    places = np.linspace(0, len(codes) - 1, pages, endpoint=False)
    first = places.astype(np.int64)
    steps = np.diff(codes.astype(object), append=codes[-1])  # of any size
    borders = [int(codes[i]) + int(steps[i] * (p - i)) for i, p in zip(first, places, strict=True)]
    return np.array(borders, dtype=np.int64), np.arange(pages, dtype=np.int64) * every + 1


class RangeReader(PageReader):
    """Reads ranges into a buffer, as the messages that pages are."""

    def __init__(self, master: DatabaseMaster, parts: int) -> None:
        self.reads = self.bytes_read = 0
        self._master, self._index, self._schema = master, master.index, master.page_schema
        self._size = max(1, parts) * master.statistics.largest_part
        self._held: list[pa.Buffer] = []

    @property
    def nbytes(self) -> int:
        """Bytes that the buffer holds now."""
        return sum(content.size for content in self._held)

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        raise NotImplementedError

    def load(self, part: int, count: int) -> list[pa.RecordBatch]:
        """Read neighbouring ranges with one query."""
        contents = self._contents(range(part, part + count))
        return [pa.ipc.read_record_batch(content, self._schema) for content in contents]

    def sweep(self, runs: Sequence[range]) -> Iterator[list[int]]:
        """Read runs of neighbouring ranges, one run a step."""
        for run in runs:
            yield self.addresses(run)

    def _contents(self, parts: range) -> list[pa.Buffer]:
        """Ask for the rows of neighbouring ranges; give a message of each."""
        self._held = []  # what was read before may go
        rows = self._rows(parts)
        self.reads += 1
        self.bytes_read += int(rows.nbytes)
        borders = self._index.page_code[parts.start + 1 : parts.stop]
        starts = [0, *np.searchsorted(rows.column(0).to_numpy(), borders).tolist()]
        for part, start, end in zip(parts, starts, [*starts[1:], rows.num_rows], strict=True):
            some = rows.slice(start, end - start)
            self._index.widest[part] = int(row_bytes(some).max(initial=0))
            self._index.rows[part] = some.num_rows
            self._held.append(some.serialize(memory_pool=pa.system_memory_pool()))
        return list(self._held)

    def _rows(self, parts: range) -> pa.RecordBatch:
        """Give the rows of ranges, in the order of their codes."""
        master, held, size = self._master, [], 0
        columns = [*master.table.keys, *master.table.payload]
        for arrays in master.store.rows(self._statement(parts), columns, _PIECE):
            held.append(self._page(arrays))
            size += int(held[-1].nbytes)
            if size > self._size // 2:
                self._refuse_growth(parts)
        if not held:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return held[0] if len(held) == 1 else concat_rows(held)

    def _statement(self, parts: range) -> Any:  # noqa: ANN401
        codes, master = self._index.page_code, self._master
        low = int(codes[parts.start]) if parts.start else None
        high = int(codes[parts.stop]) if parts.stop < len(codes) else None
        keys = [
            None if c is None else master.keys.decode(pa.array([c]))[0].as_py() for c in (low, high)
        ]
        return master.store.dialect.by_range(master.table, *keys)

    def _page(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        codes = self._master.keys.encode(arrays[:1])  # not valid: MySQL's zero, which is no date
        return page(arrays, self._master.table, self._schema, codes.values, codes.valid)

    def _refuse_growth(self, parts: range) -> None:
        codes = self._index.page_code
        first = "the beginning" if not parts.start else str(int(codes[parts.start]))
        msg = (
            f"{self._master.store}: the keys from {first} on have grown beyond the "
            f"{format_bytes(self._size // 2)} that this join reads at a time. Make a new join, "
            "which finds new ranges, or choose algorithm='adaptive', which asks by lists of keys"
        )
        raise StoreError(msg)
