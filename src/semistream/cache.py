"""Master rows held in memory, looked up by code: the papers' H_R.

Rows are kept as one immutable batch with a hash index. New rows are staged and taken in together,
in an *epoch*: then the batch and its index are made anew. So a look-up is one compiled loop over
arrays, and changes cost a few copies of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.allocation import concat, take
from semistream.kernels import chain_values, probe_values
from semistream.plain import row_bytes, row_width

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

__all__ = ["Cache", "CacheCost"]


@dataclass(frozen=True)
class CacheCost:
    """What the cache pays for a row: ``fixed`` bytes, and ``factor`` for each byte of the row.

    The index takes at most 12 bytes, hits and birth 16, the order of an epoch 8 to 24. An epoch
    makes the columns anew one after the other, so the largest exists twice.

    Examples
    --------
    >>> CacheCost.of(pa.schema([("code", pa.int64()), ("description", pa.binary(24))]))
    CacheCost(fixed=52.0, factor=1.75)
    """

    fixed: float
    factor: float

    @classmethod
    def of(cls, schema: pa.Schema) -> CacheCost:
        """Give the cost of a row of this (plain) schema."""
        widths = [row_width(field.type) for field in schema]
        known = [width for width in widths if width is not None]
        share = max(known) / sum(known) if len(known) == len(widths) else 1.0
        return cls(52.0, 1.0 + share)

    def __call__(self, rows: int, row_bytes_in_all: float) -> float:
        """Give the bytes for so many rows of so many bytes in all."""
        return rows * self.fixed + row_bytes_in_all * self.factor


class Cache:
    """Join values of the master, whole: all rows of a code, or none.

    Parameters
    ----------
    schema
        The columns of a page; the first is the code.

    Examples
    --------
    >>> cache = Cache(pa.schema([("code", pa.int64()), ("name", pa.string())]))
    >>> cache.stage(pa.record_batch({"code": [7, 7], "name": ["a", "b"]}), np.array([5, 5]), born=0)
    >>> cache.epoch()
    >>> cache.values, cache.codes.tolist()
    (1, [7, 7])
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.cost = CacheCost.of(schema)
        self._forget()
        self.hits = np.empty(0, dtype=np.int64)
        """How often each join value was asked for, at its first row."""
        self.born = np.empty(0, dtype=np.int64)
        """When the counting of hits began, in stream rows, at each row."""
        self.values = 0
        self.widest = 0
        self.evicted = 0
        self._heads = np.full(1, -1, dtype=np.int32)
        self._chain = np.empty(0, dtype=np.int32)
        self._staged: list[tuple[pa.RecordBatch, npt.NDArray[np.int64], int]] = []
        self.staged_bytes = 0.0
        self._rows_bytes = 0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        arrays = (self.hits, self.born, self._heads, self._chain)
        staged = sum(int(b.get_total_buffer_size()) + f.nbytes for b, f, _ in self._staged)
        return sum(a.nbytes for a in arrays) + staged + int(self.batch.get_total_buffer_size())

    @property
    def claimed(self) -> float:
        """Bytes that the rows here, staged ones included, need when the next epoch comes."""
        return self.cost(len(self), self._rows_bytes) + self.staged_bytes

    def firsts(self) -> npt.NDArray[np.int64]:
        """Give the first row of each join value."""
        starts = np.ones(len(self), dtype=np.bool_)
        np.not_equal(self.codes[1:], self.codes[:-1], out=starts[1:])
        return np.flatnonzero(starts)

    def probe(
        self,
        codes: npt.NDArray[np.int64],
        cursor: tuple[int, int],
        once: bool,
        rows: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        hit: npt.NDArray[np.bool_],
    ) -> tuple[int, int, int]:
        """Look codes up; see `semistream.kernels.probe_values`."""
        index = (self.codes, self._heads, self._chain, self.hits)
        found: tuple[int, int, int] = probe_values(
            codes, *index, cursor, once, rows, positions, hit
        )
        return found

    def stage(self, rows: pa.RecordBatch, hits: npt.NDArray[np.int64], born: int) -> None:
        """Note rows, whole join values, for the next epoch, with how often each was asked for."""
        self._staged.append((rows, hits, born))
        self.staged_bytes += self.price(rows)

    def price(self, rows: pa.RecordBatch) -> float:
        """Give the bytes that these rows would need here."""
        return self.cost(rows.num_rows, float(row_bytes(rows).sum()))

    def epoch(self, keep: Callable[[Cache], npt.NDArray[np.bool_]] | None = None) -> None:
        """Take the staged rows in, then keep the rows for which ``keep`` holds."""
        self._take_in()
        if keep is not None:
            chosen = keep(self)
            self.evicted += int(len(self) - np.count_nonzero(chosen))
            self._choose(np.flatnonzero(chosen))
        self._index()

    def _take_in(self) -> None:
        """Append the staged rows, but for codes that are here already."""
        staged, self._staged, self.staged_bytes = self._staged, [], 0.0
        if not staged:
            return
        batches = [self.batch, *(batch for batch, _, _ in staged)]
        counts = [batch.num_rows for batch in batches]
        self.hits = np.concatenate([self.hits, *(hits for _, hits, _ in staged)])
        births = np.repeat([born for _, _, born in staged], counts[1:])
        self.born = np.concatenate([self.born, births])
        columns = [[batch.column(i) for batch in batches] for i in range(len(self._schema))]
        self._forget()
        staged.clear()
        batches.clear()
        self._set([concat(columns.pop(0)) for _ in self._schema])
        self._choose(_first_copies(self.codes, np.repeat(np.arange(len(counts)), counts)))

    def _choose(self, rows: npt.NDArray[np.int64]) -> None:
        if len(rows) == len(self) and not np.any(rows[1:] < rows[:-1]):
            return
        self.hits, self.born = self.hits[rows], self.born[rows]
        columns = list(self.batch.columns)
        self._forget()
        # Popped one by one: only the column at work exists twice.
        self._set([take(columns.pop(0), rows) for _ in self._schema])

    def _forget(self) -> None:
        """Let go of the batch, so that its columns are freed as they are replaced."""
        empty = [pa.array([], field.type) for field in self._schema]
        self._set(empty)

    def _set(self, columns: list[pa.Array]) -> None:
        self.batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.codes = self.batch.column(0).to_numpy()

    def _index(self) -> None:
        slots = 1 << max(0, (len(self) - 1).bit_length())
        self._heads = np.empty(slots, dtype=np.int32)
        self._chain = np.empty(len(self), dtype=np.int32)
        chain_values(self.codes, self._heads, self._chain)
        sizes = row_bytes(self.batch)
        self._rows_bytes, self.widest = int(sizes.sum()), int(sizes.max(initial=0))
        self.values = len(self.firsts())


def _first_copies(
    codes: npt.NDArray[np.int64], origin: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Give the rows in order of code, each code from the first of the batches that hold it."""
    order = np.lexsort((origin, codes))
    codes, origin = codes[order], origin[order]
    run = np.cumsum(np.concatenate([[0], codes[1:] != codes[:-1]]))
    first = origin[np.flatnonzero(np.diff(run, prepend=-1))]
    chosen: npt.NDArray[np.int64] = order[origin == first[run]]
    return chosen
