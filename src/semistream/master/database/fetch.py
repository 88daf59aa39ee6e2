"""Queries for lists of keys: rows in whole join values, in the order of their codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import concat_rows, select
from semistream.master.protocol import CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from semistream.arrow.keys import Keys
    from semistream.master.database.dialect import Statement, Table
    from semistream.master.database.store import Store

    Codes = npt.NDArray[np.int64]

__all__ = ["Fetched", "Wanted", "answers"]


@dataclass(frozen=True)
class Wanted:
    """Keys to query for, each once, in the order of their codes."""

    codes: Codes
    checks: Codes
    """A second hash of each, or the code where that is exact."""
    values: list[pa.Array]
    """The keys, a column each, in the types in which they are compared."""

    @property
    def nbytes(self) -> int:
        """Bytes of the keys."""
        return self.codes.nbytes + self.checks.nbytes + sum(int(v.nbytes) for v in self.values)


@dataclass(frozen=True)
class Fetched:
    """The rows of the codes from ``low`` to ``high``, or a fragment of them."""

    rows: pa.RecordBatch
    """Rows as pages hold them, in the order of their codes."""
    low: int
    high: int
    begins: bool = True
    """Whether this is the first fragment."""
    ends: bool = True
    """Whether this is the last: only one join value too large for memory has several."""


def answers(
    store: Store,
    table: Table,
    keys: Keys,
    schema: pa.Schema,
    wanted: Wanted,
    room: int,
    asked: Callable[[], None],
) -> Iterator[Fetched]:
    """Query for keys; yield their rows in pieces of about ``room`` bytes.

    When a connection is cut in the middle, the keys that were not answered are queried again.
    """
    held = [store.dialect.can_hold(c, v) for c, v in zip(table.keys, wanted.values, strict=True)]
    possible = np.logical_and.reduce([h.to_numpy(zero_copy_only=False) for h in held])
    cut = _Cut(wanted.codes, pa.RecordBatch.from_pylist([], schema=schema), room)
    codes = wanted.codes

    def statement() -> Statement | None:
        nonlocal codes
        if not cut.restart():
            return None
        rest = possible & (np.arange(len(possible)) >= cut.done)
        codes = wanted.codes[rest]
        mask = pa.array(rest)
        return store.dialect.by_keys(table, [select(column, mask) for column in wanted.values])

    if possible.any():
        columns = [*table.keys, *table.payload]
        for arrays in store.rows(statement, columns, room, 1, asked):
            code = codes[arrays[0].to_numpy() - 1]
            # What is equal only by the database's rules is not.
            same = keys.encode(arrays[1 : 1 + len(table.key)]).values == code
            named = dict(zip([c.name for c in columns], arrays[1:], strict=True))
            named[CODE] = pa.array(code)
            page = [named[name] for name in schema.names]
            if not same.all():
                mask = pa.array(same)
                page = [select(column, mask) for column in page]
            yield from cut.add(pa.RecordBatch.from_arrays(page, schema=schema))
    yield from cut.finish()


class _Cut:
    """Cuts a sequence of rows where join values end."""

    def __init__(self, codes: Codes, empty: pa.RecordBatch, room: int) -> None:
        self._codes, self._held, self._room = codes, empty, room
        self.done = 0
        """Number of codes that were answered."""
        self._large = False  # whether a fragment of the first value held was yielded already

    def restart(self) -> bool:
        """Drop what is not whole; return whether that is possible: not of a large value."""
        self._held = self._held.slice(0, 0)
        return not self._large

    def add(self, rows: pa.RecordBatch) -> Iterator[Fetched]:
        """Take rows; yield those that are known to be whole now, or too large to be held."""
        self._held = concat_rows([self._held, rows]) if self._held.num_rows else rows
        if not self._held.num_rows:
            return
        codes = self._held.column(0).to_numpy()
        last = int(codes[-1])
        if self._large and codes[0] != last:
            yield from self._finish_large(int(np.searchsorted(codes, codes[0], side="right")))
            codes = self._held.column(0).to_numpy()
        if not self._large:
            cut = int(np.searchsorted(codes, last))
            yield from self._whole(cut, int(np.searchsorted(self._codes, last)))
        if self._held.nbytes > self._room and self._held.num_rows > 1:
            yield Fetched(self._take(self._held.num_rows - 1), last, last, not self._large, False)
            self._large = True

    def finish(self) -> Iterator[Fetched]:
        """Yield the rest."""
        if self._large:
            yield from self._finish_large(self._held.num_rows)
        yield from self._whole(self._held.num_rows, len(self._codes))

    def _finish_large(self, rows: int) -> Iterator[Fetched]:
        code = int(self._held.column(0)[0].as_py())
        self.done, self._large = int(np.searchsorted(self._codes, code, side="right")), False
        yield Fetched(self._take(rows), code, code, begins=False)

    def _whole(self, rows: int, stop: int) -> Iterator[Fetched]:
        """Yield the first rows, which are all that there is of the codes before ``stop``."""
        if stop > self.done:
            low, high = int(self._codes[self.done]), int(self._codes[stop - 1])
            self.done = stop
            yield Fetched(self._take(rows), low, high)

    def _take(self, rows: int) -> pa.RecordBatch:
        taken, self._held = self._held.slice(0, rows), self._held.slice(rows)
        return taken
