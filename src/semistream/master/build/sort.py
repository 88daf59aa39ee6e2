"""External merge sort of record batches by their first column, the code.

Sorted runs go to an unnamed temporary file; they are merged block by block, many rows at a time.
It is Arrow throughout because an SQL engine's external sort would change types on the way (large
strings, dictionaries, durations, 256-bit decimals, extensions).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from semistream.master.files.drafts import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["ExternalSort"]

_LARGEST_RUN = 1 << 30  # 32-bit offsets of string columns end at 2 GiB
_BLOCKS = 1024  # a block is this fraction of the memory
_LARGEST_BLOCK = 1 << 20  # larger ones are slower: the allocator maps each anew
_MOST_RUNS = 256  # so that a block of each is a quarter of the memory

_Run: TypeAlias = list[tuple[int, int]]
"""The offset and length of each of its blocks."""


@dataclass
class _Block:
    """Rows of a run that are in memory and not merged yet."""

    batch: pa.RecordBatch
    codes: npt.NDArray[np.int64]
    start: int = 0

    @property
    def last(self) -> int:
        return int(self.codes[-1])

    def take_until(self, code: int, inclusive: bool) -> pa.RecordBatch:
        """Consume the rows with codes up to ``code``."""
        end = int(np.searchsorted(self.codes, code, side="right" if inclusive else "left"))
        start, self.start = self.start, max(self.start, end)
        return self.batch.slice(start, self.start - start)

    @property
    def empty(self) -> bool:
        return self.start == len(self.codes)


class ExternalSort:
    """Sorts more rows than memory holds; equal codes keep their order.

    Examples
    --------
    >>> sort = ExternalSort(pa.schema([("code", pa.int64())]), memory=1 << 20)
    >>> sort.add(pa.record_batch({"code": [3, 1]}))
    >>> sort.add(pa.record_batch({"code": [2]}))
    >>> [batch.to_pydict() for batch in sort.merged()]
    [{'code': [1, 2, 3]}]
    """

    def __init__(self, schema: pa.Schema, memory: int, folder: Path | None = None) -> None:
        self.rows = 0
        self._schema, self._folder = schema, folder
        self._block_bytes = max(1, min(memory // _BLOCKS, _LARGEST_BLOCK))
        # While a run is sorted it exists twice; the allocator keeps some of what was freed.
        self._run_bytes = min(memory // 4, _LARGEST_RUN)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._spill: IO[bytes] | None = None
        self._runs: list[_Run] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows; the batch must own its memory, and nothing beside it."""
        self.rows += batch.num_rows
        size = batch.get_total_buffer_size()
        if self._held and self._held_bytes + size > self._run_bytes:
            self._write_run()
        self._held.append(batch)
        self._held_bytes += size

    def merged(self, report: Callable[[int], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in batches; ``report`` is called with the rows of each."""
        if self._runs:
            self._write_run()
        for batch in self._merge() if self._runs else self._sorted_held():
            yield batch
            if report is not None:
                report(batch.num_rows)

    def close(self) -> None:
        """Free memory and disk."""
        self._clear()
        if self._spill is not None:
            self._spill.close()

    def _sorted_held(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in memory in order, by blocks: only a block is copied at once."""
        if self._held and not _in_order(self._held):
            joined = pa.concat_batches(self._held)
            self._clear()
            order = np.argsort(joined.column(0).to_numpy(), kind="stable")
            rows = self._block_rows(joined)
            for start in range(0, len(order), rows):
                yield joined.take(pa.array(order[start : start + rows]))
        for batch in self._held:
            rows = self._block_rows(batch)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)
        self._clear()

    def _block_rows(self, batch: pa.RecordBatch) -> int:
        return max(1, int(batch.num_rows) * self._block_bytes // max(1, int(batch.nbytes)))

    def _clear(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def _write_run(self) -> None:
        if self._spill is None:
            self._spill = scratch(self._folder)
        self._runs.append(_spill(self._sorted_held(), self._spill))
        if len(self._runs) == _MOST_RUNS:
            self._join_runs()

    def _join_runs(self) -> None:
        """Merge all runs into one: more would not be merged within the memory."""
        old, new = self._spill, scratch(self._folder)
        assert old is not None  # noqa: S101 - runs were written
        self._runs = [_spill(self._merge(), new)]
        self._spill = new
        old.close()

    def _merge(self) -> Iterator[pa.RecordBatch]:
        waiting = [self._read_run(run) for run in self._runs]
        blocks: list[_Block | None] = [next(run, None) for run in waiting]
        while held := [block for block in blocks if block]:
            # Of rows with the bound's code, those in later runs wait: more may come in this one.
            first = min(range(len(held)), key=lambda i: held[i].last)
            bound = held[first].last
            pieces = [block.take_until(bound, i <= first) for i, block in enumerate(held)]
            pieces = [piece for piece in pieces if piece.num_rows]
            if len(pieces) == 1:
                yield pieces[0]
            else:  # a stable sort of sorted pieces is a merge: Timsort, for 64-bit integers
                joined = pa.concat_batches(pieces)
                order = np.argsort(joined.column(0).to_numpy(), kind="stable")
                yield joined.take(pa.array(order))
            for i, block in enumerate(blocks):
                if block and block.empty:
                    blocks[i] = next(waiting[i], None)

    def _read_run(self, run: _Run) -> Iterator[_Block]:
        spill = self._spill
        assert spill is not None  # noqa: S101 - a run was written
        for offset, length in run:
            spill.seek(offset)
            data = pa.py_buffer(spill.read(length))
            batch = pa.ipc.read_record_batch(data, self._schema)
            yield _Block(batch, batch.column(0).to_numpy())


def _in_order(batches: list[pa.RecordBatch]) -> bool:
    codes = [batch.column(0).to_numpy() for batch in batches if batch.num_rows]
    within = all((c[1:] >= c[:-1]).all() for c in codes)
    return within and all(a[-1] <= b[0] for a, b in pairwise(codes))


def _spill(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> _Run:
    return [(file.tell(), file.write(batch.serialize())) for batch in batches]
