"""Master rows held in memory, looked up by code: the papers' H_R.

Rows lie in columns that change in place, with a hash index. New rows are staged and taken in
together, in an *epoch*, after which the index is made anew. So a look-up is one compiled loop over
arrays, and a change costs a few moves of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from semistream.arrow.columns import in_place_width, make_column, varying_room
from semistream.arrow.keys import random_salt
from semistream.arrow.memory import concat_rows, take_rows
from semistream.arrow.types import row_bytes
from semistream.engine.ranking import value_starts
from semistream.kernels.chains import GONE, WAITING, chain_values, probe_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from semistream.arrow.gather import OutputColumns

    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    Found = tuple[Ints, npt.NDArray[np.int32], Ints]
    """Of each pair the arriving row, and the block and the position of the row that is held."""

    _Staged = tuple[pa.RecordBatch, npt.NDArray[np.int64], int]

__all__ = ["Cache", "CacheCost", "CachedRows"]


@dataclass(frozen=True)
class CacheCost:
    """What the cache pays for a row: ``fixed`` bytes, and ``factor`` for each byte of the row.

    The index takes at most 12 bytes, hits and birth 16, an epoch's choice 9, nulls 9/8 a column.
    Columns that do not change in place are made anew in an epoch, so that they exist twice.

    Examples
    --------
    >>> CacheCost.of(pa.schema([("code", pa.int64()), ("description", pa.binary(24))]))
    CacheCost(least=32, fixed=39.25, factor=1.0, largest=inf)
    """

    least: int
    """Bytes that every row has."""
    fixed: float
    factor: float
    largest: float
    """The most bytes that a cache may claim, whatever its rows are; see `varying_room`."""

    @classmethod
    def of(cls, schema: pa.Schema) -> CacheCost:
        """Return the cost of a row of this (plain) schema."""
        width, all_in_place = in_place_width(schema)
        fixed = 37.0 + 1.125 * len(schema)
        if all_in_place:
            return cls(width, fixed, 1.0, varying_room(schema))
        return cls(width, fixed - width, 2.0, 2.0 * varying_room(schema))

    def __call__(self, rows: int, row_bytes_in_all: float) -> float:
        """Return the bytes for so many rows of so many bytes in all."""
        return rows * self.fixed + row_bytes_in_all * self.factor


class CachedRows(Protocol):
    """Join values that are held, for those who look codes up."""

    @property
    def widest(self) -> int:
        """Bytes of the largest row."""

    def __len__(self) -> int: ...

    def probe(
        self, codes: Ints, cursor: tuple[int, int], once: bool, pairs: Found, hit: Flags
    ) -> tuple[int, int, int]:
        """Look codes up; see `semistream.kernels.chains.probe_shards`."""

    def gather(self, names: Sequence[str], right: OutputColumns, pairs: Found) -> None:
        """Append these columns of the rows that were found; pairs may be put in another order."""


class Cache:
    """Join values of the master, whole: all rows of a code, or none.

    Parameters
    ----------
    schema
        The columns of a page; the first is the code.
    capacity
        The most bytes that it will ever have; at most what `CacheCost` calls the largest.

    Examples
    --------
    >>> cache = Cache(pa.schema([("code", pa.int64()), ("name", pa.string())]), capacity=1 << 20)
    >>> cache.stage(pa.record_batch({"code": [7, 7], "name": ["a", "b"]}), np.array([5, 5]), born=0)
    >>> cache.epoch()
    >>> cache.values()[0].tolist(), cache.codes.tolist()
    ([0], [7, 7])
    """

    def __init__(self, schema: pa.Schema, capacity: int) -> None:
        self.cost = CacheCost.of(schema)
        limit = int(capacity // self.cost(1, self.cost.least)) + 1
        self._schema, self._salt = schema, np.uint64(random_salt())
        self._columns = [make_column(field.type, limit) for field in schema]
        self.batch = pa.RecordBatch.from_pylist([], schema=schema)
        self.codes = np.empty(0, dtype=np.int64)
        self.hits = np.empty(0, dtype=np.int64)
        self.born = np.empty(0, dtype=np.int64)
        """When the counting of hits began, in stream rows, at each row."""
        self.widest = 0
        self.evicted = 0
        self._heads = np.full(1, -1, dtype=np.int32)
        self._chain = np.empty(0, dtype=np.int32)
        self._staged: list[_Staged] = []
        self._staged_held = 0
        self.staged_bytes = 0.0
        self._rows_bytes = 0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        arrays = (self.hits, self.born, self._heads, self._chain)
        columns = sum(column.nbytes for column in self._columns)
        return sum(a.nbytes for a in arrays) + columns + self._staged_held

    def probe(
        self, codes: Ints, cursor: tuple[int, int], once: bool, pairs: Found, hit: Flags
    ) -> tuple[int, int, int]:
        """Look codes up; see `semistream.kernels.chains.probe_values`."""
        index = (self.codes, self._heads, self._chain, self._salt, self.hits)
        rows, _, positions = pairs
        end: tuple[int, int, int] = probe_values(codes, *index, cursor, once, rows, positions, hit)
        return end

    def gather(self, names: Sequence[str], right: OutputColumns, pairs: Found) -> None:
        """Append these columns of the rows that were found."""
        right.append([self.batch.column(name) for name in names], pairs[2])

    @property
    def claimed(self) -> float:
        """Bytes that the rows here, staged ones included, need when the next epoch comes."""
        return self.cost(len(self), self._rows_bytes) + self.staged_bytes

    def values(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the first row of each join value, and how many rows it has."""
        starts = value_starts(self.codes)
        return starts, np.diff(starts, append=len(self))

    def value_bytes(
        self, starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return the bytes that each join value takes here."""
        sizes = np.add.reduceat(row_bytes(self.batch), starts) if len(starts) else starts
        return self.cost.fixed * rows + self.cost.factor * sizes

    @property
    def mean_row(self) -> float:
        """Bytes that a row takes here in the mean."""
        return self.cost(1, self.batch.nbytes / max(1, len(self)))

    def stage(
        self,
        rows: pa.RecordBatch,
        hits: npt.NDArray[np.int64],
        born: int,
        price: float | None = None,
    ) -> None:
        """Note rows, whole join values, for the next epoch: with their hits, and their `price`."""
        self._staged.append((rows, hits, born))
        self._staged_held += int(rows.get_total_buffer_size()) + hits.nbytes
        self.staged_bytes += self.price(rows) if price is None else price

    def price(self, rows: pa.RecordBatch) -> float:
        """Return the bytes that these rows need while they are taken in: they exist twice then."""
        size = float(row_bytes(rows).sum())
        return self.cost(rows.num_rows, size) + size

    def epoch(self, keep: Callable[[Cache], npt.NDArray[np.bool_]] | None = None) -> None:
        """Take the staged rows in, then keep the rows for which ``keep`` holds."""
        staged, self._staged, self._staged_held, self.staged_bytes = self._staged, [], 0, 0.0
        if staged:
            self._append(*_new_values(self.codes, staged))
        if keep is not None:
            self._drop(keep(self))
        self._index()

    def load(self, rows: pa.RecordBatch) -> None:
        """Take rows in at once; their codes are new, `epoch` makes the index."""
        self._append(rows, np.zeros(rows.num_rows, dtype=np.int64), 0)

    def _append(self, rows: pa.RecordBatch, hits: npt.NDArray[np.int64], born: int) -> None:
        self.hits = np.concatenate([self.hits, hits])
        self.born = np.concatenate([self.born, np.full(len(hits), born)])
        self._replace(np.zeros(len(self), dtype=np.uint8), len(self), rows)

    def _drop(self, keep: npt.NDArray[np.bool_]) -> None:
        kept = int(np.count_nonzero(keep))
        self.evicted += len(self) - kept
        if kept < len(self):
            self.hits, self.born = self.hits[keep], self.born[keep]
            self._replace(np.where(keep, WAITING, GONE), kept, self.batch.slice(0, 0))

    def _replace(self, state: npt.NDArray[np.uint8], kept: int, new: pa.RecordBatch) -> None:
        pairs = zip(self._columns, new.columns, strict=True)
        columns = [column.replace(state, kept, values) for column, values in pairs]
        self.batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.codes = self.batch.column(0).to_numpy()

    def _index(self) -> None:
        slots = 1 << max(0, (len(self) - 1).bit_length())
        self._heads = np.empty(slots, dtype=np.int32)
        self._chain = np.empty(len(self), dtype=np.int32)
        chain_values(self.codes, self._heads, self._chain, self._salt)
        sizes = row_bytes(self.batch)
        self._rows_bytes, self.widest = int(sizes.sum()), int(sizes.max(initial=0))


def _new_values(codes: npt.NDArray[np.int64], staged: list[_Staged]) -> _Staged:
    """Return the staged rows in one piece, without codes that are here or were staged before."""
    rows = concat_rows([rows for rows, _, _ in staged])
    hits = np.concatenate([hits for _, hits, _ in staged])
    origin = np.repeat(np.arange(len(staged)), [rows.num_rows for rows, _, _ in staged])
    born = staged[-1][2]
    staged.clear()  # their memory, before it is needed for a copy
    new = rows.column(0).to_numpy()
    values, first = np.unique(new, return_index=True)
    chosen = origin == origin[first][np.searchsorted(values, new)]
    chosen &= ~np.isin(new, codes)
    return take_rows(rows, np.flatnonzero(chosen)), hits[chosen], born
