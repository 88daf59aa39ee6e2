"""Readers of a master's pages: memory-mapped, or past the system's page cache."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import private_memory
from semistream.arrow.page_shape import PageShape
from semistream.errors import CorruptPageError, MasterError, OptionError
from semistream.master.files.aio import Reads
from semistream.master.files.drafts import ReadFile, resident_pages
from semistream.master.files.format import aligned, checksum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from semistream.master.files.master import FileMaster

__all__ = ["READ", "PageReader", "reader_kind"]


_AHEAD = 4  # runs that the operating system reads ahead
_SAMPLE = 64  # parts whose residence is checked: some 2 ms


class PageReader(ABC):
    """Reads parts of a master into an operator's disk buffer (the papers' D_B).

    A batch that `load` returns is valid until the next call: its memory is the buffer's.
    """

    flags: ClassVar[int] = 0
    """Flags to open the pages file with."""

    def __init__(self, master: FileMaster, parts: int, run: int) -> None:  # noqa: ARG002 - see below
        self.reads = self.bytes_read = 0
        self._file = master.pages_file
        self._index = master.index
        self._schema = master.page_schema
        self._shape = PageShape(self._schema)

    @classmethod
    def open(cls, path: Path) -> ReadFile:
        """Open a pages file in this reader's way."""
        return ReadFile(path, cls.flags)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the disk buffer holds now."""

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each part lies in memory, if all do."""
        raise NotImplementedError

    def held(self) -> float:
        """Estimate from a sample the fraction of the master that lies in memory."""
        return 0.0

    @abstractmethod
    def _fetch(self, start: int, length: int) -> pa.Buffer:
        """Read bytes of the pages file from ``start`` on, at once."""

    def load(self, part: int, count: int) -> list[pa.RecordBatch]:
        """Read ``count`` neighbouring parts with one call to the operating system."""
        addresses = self.addresses(range(part, part + count))
        return [self.batch(part + i, address) for i, address in enumerate(addresses)]

    def batch(self, part: int, address: int) -> pa.RecordBatch:
        """Return the rows of a part that was read, and lies at this address."""
        try:
            # The rows keep the reader, and so the memory that they lie in.
            content = pa.foreign_buffer(address, self.length(part), base=self)
            return pa.ipc.read_record_batch(content, self._schema)
        except (pa.ArrowException, OSError) as error:  # what Arrow reads of a header and we do not
            self._refuse(int(self._index.offset[part]), f"is no page ({error})")

    def length(self, part: int) -> int:
        """Return the bytes of a part in memory."""
        return aligned(int(self._index.length[part]))

    def addresses(self, parts: range) -> list[int]:
        """Read neighbouring parts likewise; return where each lies in memory."""
        return [content.address for content in self._contents(parts)]

    def sweep(self, runs: Sequence[range]) -> Iterator[list[int]]:
        """Read runs of neighbouring parts, one run a step, and the next ones meanwhile.

        Each step yields where the parts of a run lie, until the next step.
        """
        for run in runs[:_AHEAD]:
            self._file.expect(*self._place(run))
        for run, after in zip_longest(runs, runs[_AHEAD:]):
            if after is not None:
                self._file.expect(*self._place(after))
            yield self.addresses(run)

    def _contents(self, parts: range) -> list[pa.Buffer]:
        start, size = self._place(parts)
        self.reads, self.bytes_read = self.reads + 1, self.bytes_read + size
        return self._cut(parts, self._fetch(start, size))

    def _place(self, parts: range) -> tuple[int, int]:
        """Return the offset and the bytes of neighbouring parts."""
        start, end = self._index.bounds(parts)
        return start, end - start

    def _cut(self, parts: range, data: pa.Buffer) -> list[pa.Buffer]:
        """Cut what was read into parts, and verify each."""
        contents, offset, length = [], self._index.offset, self._index.length
        start = int(offset[parts[0]])
        for part in parts:
            contents.append(data.slice(int(offset[part]) - start, aligned(int(length[part]))))
            self._verify(contents[-1], part)
        return contents

    def _verify(self, content: pa.Buffer, part: int) -> None:
        if checksum(content) != int(self._index.checksum[part]):
            self._refuse(int(self._index.offset[part]), "is damaged, its checksum differs")
        length, rows = int(self._index.length[part]), int(self._index.rows[part])
        if not self._shape.fits(content, length, rows):
            self._refuse(int(self._index.offset[part]), "does not hold what its header says")

    def _refuse(self, byte: int, what: str) -> NoReturn:
        page = self._index.page_at(byte)
        msg = f"{self._file.path}: {page} (byte {byte:,}) {what}; build the master again"
        raise CorruptPageError(msg)


class _MappedReader(PageReader):
    """Pages of a memory-mapped file; each checksum is verified once."""

    def __init__(self, master: FileMaster, parts: int, run: int) -> None:
        super().__init__(master, parts, run)
        self._data = self._file.mapped()
        self._verified = np.zeros(len(self._index.code), dtype=np.bool_)
        self._current = 0

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each part lies in memory."""
        starts: npt.NDArray[np.int64] = self._index.offset + self._data.address
        return starts

    @property
    def nbytes(self) -> int:
        # Mapped pages are the operating system's; they are counted as if they were ours.
        return self._current + self._verified.nbytes

    def held(self) -> float:
        parts = len(self._index.code)
        resident = size = 0
        for part in np.unique(np.linspace(0, parts - 1, min(parts, _SAMPLE)).astype(int)).tolist():
            start, length = self._place(range(part, part + 1))
            resident += max(0, resident_pages(self._data.address + start, length)) * mmap.PAGESIZE
            size += length
        return resident / size if size else 1.0

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        self._current = length
        return self._data.slice(start, length)

    def _verify(self, content: pa.Buffer, part: int) -> None:
        if not self._verified[part]:
            super()._verify(content, part)
            self._verified[part] = True


class _DirectReader(PageReader):
    """Pages read past the operating system's cache into buffers of our own.

    There is one buffer for each run that the disk buffer has room for; all but one are being filled
    while a sweep's step is at work.
    """

    flags = os.O_DIRECT

    def __init__(self, master: FileMaster, parts: int, run: int) -> None:
        super().__init__(master, parts, run)
        size = max(1, master.statistics.largest_part * run)
        # Private memory is aligned, as O_DIRECT wants it.
        self._memory = [private_memory(size) for _ in range(max(1, parts // run))]
        self._buffers = [pa.py_buffer(memory) for memory in self._memory]
        self._in_flight: Reads | None = None

    @property
    def _reads(self) -> Reads | None:
        if len(self._buffers) > 1 and not (self._in_flight and self._in_flight.is_ours):
            self._in_flight = Reads.open(len(self._buffers))
        return self._in_flight

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
        return sum(len(memory) for memory in self._memory)

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        return self._read(0, start, length)

    def _read(self, buffer: int, start: int, length: int) -> pa.Buffer:
        got = self._file.read_into(memoryview(self._memory[buffer])[:length], start)
        if got != length:
            self._refuse(start + got, "is cut off")
        return self._buffers[buffer]

    def sweep(self, runs: Sequence[range]) -> Iterator[list[int]]:
        """Read runs of neighbouring parts, one run a step, and the next ones meanwhile."""
        reads = self._reads
        if reads is None:  # one buffer, or a system without such calls
            yield from (self.addresses(run) for run in runs)
            return
        places, count = [self._place(run) for run in runs], len(self._buffers)
        started = [self._start(reads, i, *places[i]) for i in range(min(count - 1, len(runs)))]
        try:
            for i, run in enumerate(runs):
                data = self._finish(reads, started[i], i % count, *places[i])
                if i + count - 1 < len(runs):  # into the buffer that is free again
                    upcoming = i + count - 1
                    started.append(self._start(reads, upcoming % count, *places[upcoming]))
                self.reads, self.bytes_read = self.reads + 1, self.bytes_read + places[i][1]
                yield [content.address for content in self._cut(run, data)]
        finally:
            reads.wait_for_all()  # they write into the buffers

    def _start(self, reads: Reads, buffer: int, start: int, length: int) -> bool:
        if length > len(self._memory[buffer]):  # the kernel would write behind it
            self._refuse(start, f"has {length:,} bytes, more than the index has")
        address = self._buffers[buffer].address
        return reads.start(buffer, self._file.handle, address, length, start)

    def _finish(
        self, reads: Reads, started: bool, buffer: int, start: int, length: int
    ) -> pa.Buffer:
        """Wait for a read; one that was not started, or fell short, is repeated here."""
        if started and reads.wait(buffer) == length:
            return self._buffers[buffer]
        return self._read(buffer, start, length)


_KINDS: dict[str, type[PageReader]] = {"mapped": _MappedReader, "direct": _DirectReader}
READ = tuple(_KINDS)
"""Ways to read pages: what `open_master` takes."""


def reader_kind(read: str) -> type[PageReader]:
    """Return the reader for this option of `open_master`."""
    if read not in _KINDS:
        raise OptionError.unknown("read", read, _KINDS)
    return _KINDS[read]
