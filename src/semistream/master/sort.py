"""External merge sort of record batches by their first column, the code.

Sorted runs go to an unnamed temporary file; they are merged block by block, many rows at a time.
It is Arrow throughout because an SQL engine's external sort would change types on the way (large
strings, dictionaries, durations, 256-bit decimals, extensions).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["ExternalSort"]

_LARGEST_RUN = 1 << 30  # 32-bit offsets of string columns end at 2 GiB
_BLOCKS = 1024  # a block is this part of the memory


@dataclass
class _Block:
    """The rows of a run that are in memory and not merged yet."""

    batch: pa.RecordBatch
    codes: npt.NDArray[np.int64]
    start: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Block:
        return cls(batch, batch.column(0).to_numpy())

    @property
    def last(self) -> int:
        return int(self.codes[-1])

    def take_until(self, code: int) -> pa.RecordBatch:
        """Give, and pass, the rows with codes up to and including ``code``."""
        end = int(np.searchsorted(self.codes, code, side="right"))
        start, self.start = self.start, end
        return self.batch.slice(start, end - start)

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
        self._schema, self._memory, self._folder = schema, memory, folder
        self._run_bytes = min(memory // 3, _LARGEST_RUN)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._spill: IO[bytes] | None = None
        self._runs: list[list[tuple[int, int]]] = []  # a run is a list of (offset, length)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self.rows += batch.num_rows
        size = batch.get_total_buffer_size()
        if self._held and self._held_bytes + size > self._run_bytes:
            self._write_run()
        self._held.append(batch)
        self._held_bytes += size

    def merged(self, passed: Callable[[int], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order, in batches; ``passed`` is told how many came in each."""
        batches = self._merge() if self._runs else self._sorted_held()
        for batch in batches:
            yield batch
            if passed is not None:
                passed(batch.num_rows)

    def close(self) -> None:
        """Free memory and disk."""
        self._held.clear()
        if self._spill is not None:
            self._spill.close()

    def _sorted_held(self) -> Iterator[pa.RecordBatch]:
        """Give the rows in memory in order, by blocks, so that only a block is copied at once."""
        if not self._held:
            return
        held = pa.concat_batches(self._held)
        self._held.clear()
        self._held_bytes = 0
        order = np.argsort(held.column(0).to_numpy(), kind="stable")
        rows = max(1, held.num_rows * self._block_bytes // max(1, held.get_total_buffer_size()))
        for start in range(0, len(order), rows):
            yield held.take(pa.array(order[start : start + rows]))

    @property
    def _block_bytes(self) -> int:
        return max(1, self._memory // _BLOCKS)

    def _write_run(self) -> None:
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see close
        run = []
        for block in self._sorted_held():
            run.append((self._spill.tell(), self._spill.write(block.serialize())))
        self._runs.append(run)

    def _merge(self) -> Iterator[pa.RecordBatch]:
        self._write_run()
        if len(self._runs) > _BLOCKS // 3:
            least = format_bytes(self._memory * len(self._runs) / (_BLOCKS // 3))
            msg = f"{len(self._runs)} sorted runs do not merge in memory; give at least {least}"
            raise BudgetError(msg)
        waiting = [self._read_run(run) for run in self._runs]
        blocks: list[_Block | None] = [next(run, None) for run in waiting]
        while any(blocks):
            bound = min(block.last for block in blocks if block)
            pieces = [block.take_until(bound) for block in blocks if block]
            yield _merge_pieces([piece for piece in pieces if piece.num_rows])
            for i, block in enumerate(blocks):
                if block and block.empty:
                    blocks[i] = next(waiting[i], None)

    def _read_run(self, run: Iterable[tuple[int, int]]) -> Iterator[_Block]:
        spill = self._spill
        assert spill is not None  # noqa: S101 - a run was written
        for offset, length in run:
            spill.seek(offset)
            data = pa.py_buffer(spill.read(length))
            yield _Block.of(pa.ipc.read_record_batch(data, self._schema))


def _merge_pieces(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    joined = pa.concat_batches(pieces)
    # A stable sort of sorted pieces is a merge (NumPy's is Timsort for 64-bit integers).
    return joined.take(pa.array(np.argsort(joined.column(0).to_numpy(), kind="stable")))
