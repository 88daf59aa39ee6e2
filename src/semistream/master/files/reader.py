"""Readers of a master's pages: memory-mapped, or past the system's page cache."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import private_memory
from semistream.arrow.page_shape import PageShape
from semistream.errors import CorruptPageError, MasterError, OptionError
from semistream.master.files.aio import Reads
from semistream.master.files.drafts import ReadFile, resident_pages
from semistream.master.files.format import ALIGNMENT, aligned, checksum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from semistream.master.files.index import Index
    from semistream.master.files.master import FileMaster

    Ints = npt.NDArray[np.int64]
    Step = tuple[slice, Ints]

__all__ = ["READ", "PageReader", "reader_kind"]


_AHEAD = 4  # steps that the operating system reads ahead
_SAMPLE = 64  # parts whose residence is checked: some 2 ms


class _Stretches(NamedTuple):
    """Ascending parts of a file, neighbours put together: one read each."""

    offsets: Ints
    sizes: Ints
    starts: Ints
    """Where each stretch begins, if one is put behind the other."""
    parts: Ints
    """Where each part begins then."""

    @classmethod
    def of(cls, parts: Ints, index: Index) -> _Stretches:
        offset, size = index.offset[parts], _padded(index.length[parts])
        first = np.ones(len(parts), dtype=np.bool_)
        np.not_equal(offset[1:], offset[:-1] + size[:-1], out=first[1:])
        begin, place = np.flatnonzero(first), np.cumsum(size) - size
        return cls(offset[begin], np.add.reduceat(size, begin), place[begin], place)


class PageReader(ABC):
    """Reads parts of a master into an operator's disk buffer (the papers' D_B).

    A batch that `load` returns is valid until the next call: its memory is the buffer's.
    """

    flags: ClassVar[int] = 0
    """Flags to open the pages file with."""

    def __init__(self, master: FileMaster, parts: int, run: int) -> None:  # noqa: ARG002 - below
        self.reads = self.bytes_read = 0
        self._file = master.pages_file
        self._index = master.index
        self._schema = master.page_schema
        self._shape = PageShape(self._schema)
        self._run = run

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
        """Read neighbouring parts, as many as the disk buffer holds; return where each lies."""
        places: list[int] = self._read(np.arange(parts.start, parts.stop)).tolist()
        return places

    @abstractmethod
    def sweep(self, parts: Ints) -> Iterator[Step]:
        """Read ascending parts, some of them a step, and the next ones meanwhile.

        Each step yields which of the parts it has, and where these lie until the next step.
        """

    @abstractmethod
    def _read(self, parts: Ints) -> Ints:
        """Read ascending parts at once; return where they lie, verified."""

    def _steps(self, parts: Ints) -> list[slice]:
        return [slice(i, i + self._run) for i in range(0, len(parts), self._run)]

    def _place(self, parts: range) -> tuple[int, int]:
        """Return the offset and the bytes of neighbouring parts."""
        start, end = self._index.bounds(parts)
        return start, end - start

    def _verify(self, parts: Ints, places: Ints, memory: pa.Buffer) -> None:
        """Refuse parts that are not what the index says; they lie at these places of memory."""
        index, data = self._index, memoryview(memory)
        length = index.length[parts]
        ends, sums = (places + _padded(length)).tolist(), index.checksum[parts].tolist()
        for i, place in enumerate(places.tolist()):
            if checksum(data[place : ends[i]]) != sums[i]:
                self._refuse(int(index.offset[parts[i]]), "is damaged, its checksum differs")
        wrong = self._shape.first_unsound(memory.address + places, length, index.rows[parts])
        if wrong >= 0:
            byte = int(index.offset[parts[wrong]])
            self._refuse(byte, "does not hold what its header says")

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

    def sweep(self, parts: Ints) -> Iterator[Step]:
        steps = self._steps(parts)
        for step in steps[:_AHEAD]:
            self._expect(parts[step])
        for number, step in enumerate(steps):
            for after in steps[number + _AHEAD : number + _AHEAD + 1]:
                self._expect(parts[after])
            yield step, self._read(parts[step])

    def _expect(self, parts: Ints) -> None:
        stretches = _Stretches.of(parts, self._index)
        for start, size in zip(stretches.offsets.tolist(), stretches.sizes.tolist(), strict=True):
            self._file.expect(start, size)

    def _read(self, parts: Ints) -> Ints:
        stretches = _Stretches.of(parts, self._index)
        self._current = int(stretches.sizes.sum())
        self.reads += len(stretches.sizes)
        self.bytes_read += self._current
        places = self._index.offset[parts]
        unknown = ~self._verified[parts]
        if unknown.any():
            self._verify(parts[unknown], places[unknown], self._data)
            self._verified[parts] = True
        addresses: Ints = places + self._data.address
        return addresses


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
            self._in_flight = Reads.open(len(self._buffers), self._run)
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

    def sweep(self, parts: Ints) -> Iterator[Step]:
        steps, reads, count = self._steps(parts), self._reads, len(self._buffers)
        if reads is None or (len(steps) == 1 and parts[-1] - parts[0] == len(parts) - 1):
            yield from ((step, self._read(parts[step])) for step in steps)
            return
        ahead: deque[_Stretches] = deque()
        try:
            for number, step in enumerate(steps):
                for later in range(number + len(ahead), min(number + count, len(steps))):
                    ahead.append(self._start(reads, later % count, parts[steps[later]]))
                stretches, buffer = ahead.popleft(), number % count
                if not reads.wait(buffer):
                    self._read_into(buffer, stretches)
                yield step, self._addresses(buffer, parts[step], stretches)
        finally:
            reads.wait_for_all()  # they write into the buffers

    def _start(self, reads: Reads, buffer: int, parts: Ints) -> _Stretches:
        stretches = self._stretches(buffer, parts)
        addresses = self._buffers[buffer].address + stretches.starts
        reads.start(buffer, self._file.handle, addresses, stretches.sizes, stretches.offsets)
        return stretches

    def _read(self, parts: Ints) -> Ints:
        stretches = self._stretches(0, parts)
        self._read_into(0, stretches)
        return self._addresses(0, parts, stretches)

    def _stretches(self, buffer: int, parts: Ints) -> _Stretches:
        stretches = _Stretches.of(parts, self._index)
        size = int(stretches.sizes.sum())
        if size > len(self._memory[buffer]):  # the kernel would write behind it
            self._refuse(int(stretches.offsets[0]), f"has {size:,} bytes, more than the index has")
        return stretches

    def _read_into(self, buffer: int, stretches: _Stretches) -> None:
        """Read into a buffer, and wait for it: also what was not started, or fell short."""
        memory = memoryview(self._memory[buffer])
        for offset, size, start in zip(*(n.tolist() for n in stretches[:3]), strict=True):
            got = self._file.read_into(memory[start : start + size], offset)
            if got != size:
                self._refuse(offset + got, "is cut off")

    def _addresses(self, buffer: int, parts: Ints, stretches: _Stretches) -> Ints:
        """Count what was read and verify it; return where it lies."""
        self.reads += len(stretches.sizes)
        self.bytes_read += int(stretches.sizes.sum())
        self._verify(parts, stretches.parts, self._buffers[buffer])
        addresses: Ints = stretches.parts + self._buffers[buffer].address
        return addresses


def _padded(lengths: npt.NDArray[np.int32]) -> Ints:
    """Return the bytes of parts with their padding."""
    padded: Ints = -(-lengths.astype(np.int64) // ALIGNMENT) * ALIGNMENT
    return padded


_KINDS: dict[str, type[PageReader]] = {"mapped": _MappedReader, "direct": _DirectReader}
READ = tuple(_KINDS)
"""Ways to read pages: what `open_master` takes."""


def reader_kind(read: str) -> type[PageReader]:
    """Return the reader for this option of `open_master`."""
    if read not in _KINDS:
        raise OptionError.unknown("read", read, _KINDS)
    return _KINDS[read]
