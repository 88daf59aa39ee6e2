"""The file of a hot set that all processes write to: counters, and staged rows."""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.engine.sketch import Sketch
from semistream.hotset.sizes import HEADER
from semistream.system.shared_folder import Handle, boot, reserve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from semistream.hotset.sizes import HostSizes

__all__ = ["Journal"]

_MAGIC = 0x31_4E4F_4D4D_4F43  # COMMON1
# Words of the header, after magic and boot.
_ROWS, _THRESHOLD, _STAGED, _SNAPSHOT, _SHARD, _WRITTEN = 2, 3, 4, 5, 6, 7


class Journal:
    """Counters without any lock, for a lost count costs little; staged rows under a lock.

    Parameters
    ----------
    path
        The file; it is created if there is none.
    sizes
        The bytes of its parts.
    """

    def __init__(self, path: Path, sizes: HostSizes) -> None:
        self._file, self._shards = Handle(path), sizes.shards
        size = HEADER + sizes.counters + sizes.staged
        if self._file.size < size:
            reserve(self._file, path, size)
        memory = mmap.mmap(self._file.number, size)
        self._words = np.frombuffer(memory, np.uint64, 8)
        self._numbers = self._words.view(np.float64)
        self._begin()
        counters = np.frombuffer(memory, np.uint8, sizes.counters, HEADER)
        self.sketch = Sketch(counters)
        self._log = pa.py_buffer(memory).slice(HEADER + sizes.counters)
        self._log_bytes = np.frombuffer(memory, np.uint8, offset=HEADER + sizes.counters)
        self.nbytes = size

    def _begin(self) -> None:
        """Start anew after a reboot: what was written before may be incomplete."""
        if self._is_begun or not self._file.wait_for_lock(alone=True):
            return  # someone else is at it
        if not self._is_begun:
            self._words[2:] = 0
            self._words[0], self._words[1] = _MAGIC, boot()
        self._file.unlock()

    @property
    def _is_begun(self) -> bool:
        return bool(self._words[0] == _MAGIC and self._words[1] == boot())

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Exclude others from staging, publishing and ageing; yield whether that succeeded.

        It must not be nested: the inner one would succeed, and unlock the outer one.
        """
        alone = self._file.lock(alone=True)
        try:
            yield alone
        finally:
            if alone:
                self._file.unlock()

    @property
    def rows(self) -> int:
        """Stream rows since counts were halved."""
        return int(self._words[_ROWS])

    def count(self, rows: int) -> None:
        """Count stream rows."""
        self._words[_ROWS] += np.uint64(rows)

    @property
    def threshold(self) -> float:
        """Hits that a row must exceed to be staged: none while there is room for all."""
        return float(self._numbers[_THRESHOLD])

    @threshold.setter
    def threshold(self, value: float) -> None:
        self._numbers[_THRESHOLD] = value

    def age(self) -> None:
        """Halve all counts."""
        self.sketch.age()
        self.threshold = max(1.0, self.threshold / 2) if self.threshold else 0.0
        self._words[_ROWS] = 0

    def staged_bytes(self, snapshot: int) -> int:
        """Return the bytes of the staged rows of this snapshot."""
        staged = int(self._words[_STAGED]) if int(self._words[_SNAPSHOT]) == snapshot else 0
        return min(staged, len(self._log_bytes))

    def stage(self, rows: pa.RecordBatch, snapshot: int) -> bool:
        """Stage rows of this snapshot of the master; return whether there was room."""
        if int(self._words[_SNAPSHOT]) != snapshot:
            self.clear()
            self._words[_SNAPSHOT] = snapshot
        message, start = rows.serialize(), self.staged_bytes(snapshot)
        end = start + message.size
        if end > len(self._log_bytes):
            return False
        self._log_bytes[start:end] = np.frombuffer(message, np.uint8)
        self._words[_STAGED] = end  # last: what a process leaves unfinished is not there
        return True

    def staged(self, schema: pa.Schema, snapshot: int) -> Iterator[pa.RecordBatch]:
        """Yield the staged rows of this snapshot; their memory is the file's."""
        reader = pa.BufferReader(self._log.slice(0, self.staged_bytes(snapshot)))
        while reader.tell() < reader.size():
            yield pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema)

    @property
    def unwritten(self) -> Iterator[int]:
        """The shards that have not got what is staged, as `note_written` counts them."""
        first, done = int(self._words[_SHARD]), int(self._words[_WRITTEN])
        return (shard % self._shards for shard in range(first, first + self._shards - done))

    def note_written(self) -> None:
        """Note that the first of the `unwritten` shards has got its rows; forget all with the last.

        Whoever goes on begins where another had to stop, so that no shard is left out for ever.
        """
        self._words[_SHARD] = (int(self._words[_SHARD]) + 1) % self._shards
        self._words[_WRITTEN] += np.uint64(1)
        if int(self._words[_WRITTEN]) >= self._shards:
            self.clear()

    def clear(self) -> None:
        """Forget the staged rows."""
        self._words[_STAGED] = self._words[_WRITTEN] = 0

    def close(self) -> None:
        """Close the file; mappings go with their last reader."""
        self._file.close()
