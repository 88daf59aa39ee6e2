"""The readers that bring a master's pages to an operator: mapped, or past the system's cache."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from itertools import cycle, islice
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from semistream.allocation import private_memory
from semistream.errors import CorruptPageError, MasterError, OptionError
from semistream.master.files import ReadFile
from semistream.master.format import aligned, checksum

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from semistream.master.store import Master

__all__ = ["PageReader", "reader_kind"]


_MOST_THREADS = 4


class PageReader(ABC):
    """Brings parts of a master into an operator's disk buffer (the papers' D_B).

    A batch that `load` gave is valid until the next call: its memory is the buffer's.
    """

    flags: ClassVar[int] = 0
    """How the pages file is opened."""

    def __init__(self, master: Master, parts: int, run: int) -> None:  # noqa: ARG002 - see below
        self.reads = 0
        self.bytes_read = 0
        self._file = master.pages_file
        self._index = master.index
        self._schema = master.page_schema

    @classmethod
    def open(cls, path: Path) -> ReadFile:
        """Open a pages file in this reader's way."""
        return ReadFile(path, cls.flags)

    @property
    def address(self) -> int:
        """Where the pages file begins in memory, if it is there."""
        raise NotImplementedError

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the disk buffer holds now."""

    @abstractmethod
    def _fetch(self, start: int, length: int) -> pa.Buffer:
        """Give the bytes of the pages file from ``start`` on, in one read."""

    def load(self, part: int, count: int) -> list[pa.RecordBatch]:
        """Read ``count`` neighbouring parts with one call to the operating system."""
        parts = range(part, part + count)
        return self._parsed(parts, self._fetch(*self._place(parts)))

    def sweep(self, runs: Sequence[range]) -> Iterator[list[pa.RecordBatch]]:
        """Read runs of neighbouring parts, one run a step, and the next ones meanwhile."""
        for run, after in zip(runs, [*runs[1:], None], strict=True):
            batches = self.load(run.start, len(run))
            if after is not None:
                self._file.expect(*self._place(after))
            yield batches

    def _place(self, parts: range) -> tuple[int, int]:
        """Give where neighbouring parts begin, and how many bytes they have."""
        offset, last = self._index.offset, parts[-1]
        start = int(offset[parts[0]])
        return start, int(offset[last]) + aligned(int(self._index.length[last])) - start

    def _parsed(self, parts: range, data: pa.Buffer) -> list[pa.RecordBatch]:
        start, size = self._place(parts)
        self.reads += 1
        self.bytes_read += size
        contents = self._contents(parts, data, start)
        return [pa.ipc.read_record_batch(content, self._schema) for content in contents]

    def _contents(self, parts: range, data: pa.Buffer, start: int) -> list[pa.Buffer]:
        """Cut what was read into parts, and verify each."""
        contents = []
        for part in parts:
            offset, length = int(self._index.offset[part]), int(self._index.length[part])
            contents.append(data.slice(offset - start, aligned(length)))
            self._verify(contents[-1], part)
        return contents

    def _verify(self, content: pa.Buffer, part: int) -> None:
        if checksum(content) != int(self._index.checksum[part]):
            self._refuse(int(self._index.offset[part]), "is damaged, its checksum differs")

    def _refuse(self, byte: int, what: str) -> None:
        page = self._index.page_at(byte)
        msg = f"{self._file.path}: {page} (byte {byte:,}) {what}; build the master again"
        raise CorruptPageError(msg)


class _MappedReader(PageReader):
    """Pages of a memory-mapped file; each checksum is verified once."""

    def __init__(self, master: Master, parts: int, run: int) -> None:
        super().__init__(master, parts, run)
        self._data = self._file.mapped()
        self._verified = np.zeros(len(self._index.code), dtype=np.bool_)
        self._current = 0

    @property
    def address(self) -> int:
        """Where the pages file begins in memory."""
        return int(self._data.address)

    @property
    def nbytes(self) -> int:
        # Mapped pages are the operating system's; they are counted as if they were ours.
        return self._current + self._verified.nbytes

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        self._current = length
        return self._data.slice(start, length)

    def _verify(self, content: pa.Buffer, part: int) -> None:
        if not self._verified[part]:
            super()._verify(content, part)
            self._verified[part] = True


class _DirectReader(PageReader):
    """Pages read past the operating system's cache into buffers of our own.

    There is one buffer for each run that the disk buffer has room for; all but one are filled by
    threads while a sweep's step is at work.
    """

    flags = os.O_DIRECT

    def __init__(self, master: Master, parts: int, run: int) -> None:
        super().__init__(master, parts, run)
        size = max(1, master.statistics.largest_part * run)
        # Private memory is aligned, as O_DIRECT wants it.
        self._buffers = [private_memory(size) for _ in range(max(1, parts // run))]

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(_MOST_THREADS, len(self._buffers)), "semistream-reads")

    @classmethod
    def open(cls, path: Path) -> ReadFile:
        try:
            return super().open(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            msg = f"{path}: no direct reads on this file system; open it with read='mapped'"
            raise MasterError(msg) from error

    @property
    def nbytes(self) -> int:
        return sum(len(memory) for memory in self._buffers)

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        return self._read(self._buffers[0], start, length)

    def _read(self, memory: mmap.mmap, start: int, length: int) -> pa.Buffer:
        got = self._file.read_into(memoryview(memory)[:length], start)
        if got != length:
            self._refuse(start + got, "is cut off")
        return pa.py_buffer(memory)

    def sweep(self, runs: Sequence[range]) -> Iterator[list[pa.RecordBatch]]:
        """Read runs of neighbouring parts, one run a step, and the next ones meanwhile."""
        if len(self._buffers) == 1:
            yield from (self.load(run.start, len(run)) for run in runs)
            return
        flights: deque[Future[pa.Buffer]] = deque()
        ahead = zip(runs, cycle(self._buffers), strict=False)
        try:
            for run, memory in islice(ahead, len(self._buffers) - 1):
                flights.append(self._threads.submit(self._read, memory, *self._place(run)))
            for current in runs:
                data = flights.popleft().result()
                for run, memory in islice(ahead, 1):  # into the buffer that is free again
                    flights.append(self._threads.submit(self._read, memory, *self._place(run)))
                yield self._parsed(current, data)
        finally:
            wait(flights)  # they write into the buffers


_KINDS: dict[str, type[PageReader]] = {"mapped": _MappedReader, "direct": _DirectReader}


def reader_kind(read: str) -> type[PageReader]:
    """Give the reader that this option of `open_master` names."""
    if read not in _KINDS:
        raise OptionError.unknown("read", read, _KINDS)
    return _KINDS[read]
