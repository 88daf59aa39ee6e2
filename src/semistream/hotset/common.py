"""The file of a state that all processes write to: counters, and rows on their way."""

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

__all__ = ["Common"]

_MAGIC = 0x31_4E4F_4D4D_4F43  # COMMON1
_ROWS, _THRESHOLD, _STAGED, _SNAPSHOT = 2, 3, 4, 5  # words of the header, after magic and boot


class Common:
    """Counters without any lock, for a count that is lost costs little; the rest under a lock.

    Parameters
    ----------
    path
        The file; it is made if there is none.
    sizes
        The bytes of its parts.
    """

    def __init__(self, path: Path, sizes: HostSizes) -> None:
        self._file = Handle(path)
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
        """Start anew where the system did: rows that were staged before may be there in part."""
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
        """Be the only one who stages, publishes and ages; tell whether that is so.

        It is not to be nested: the inner one would succeed, and end the outer one.
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
        """Note stream rows."""
        self._words[_ROWS] += np.uint64(rows)

    @property
    def threshold(self) -> float:
        """How often a row must have been asked for, to be held."""
        return max(1.0, float(self._numbers[_THRESHOLD]))

    @threshold.setter
    def threshold(self, value: float) -> None:
        self._numbers[_THRESHOLD] = value

    def age(self) -> None:
        """Halve all counts."""
        self.sketch.age()
        self.threshold = self.threshold / 2
        self._words[_ROWS] = 0

    def staged_bytes(self, snapshot: int) -> int:
        """Give the bytes of the rows of this snapshot that are on their way."""
        staged = int(self._words[_STAGED]) if int(self._words[_SNAPSHOT]) == snapshot else 0
        return min(staged, len(self._log_bytes))

    def stage(self, rows: pa.RecordBatch, snapshot: int) -> bool:
        """Append rows of this snapshot of the master, if there is room."""
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
        """Give the rows of this snapshot that are on their way; their memory is the file's."""
        reader = pa.BufferReader(self._log.slice(0, self.staged_bytes(snapshot)))
        while reader.tell() < reader.size():
            yield pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema)

    def clear(self) -> None:
        """Forget the rows on their way."""
        self._words[_STAGED] = 0

    def close(self) -> None:
        """Close the file; mappings go when no one looks at them any more."""
        self._file.close()
