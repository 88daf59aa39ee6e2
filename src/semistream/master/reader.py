"""The readers that bring a master's pages to an operator: mapped, or past the system's cache."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from semistream.allocation import private_memory
from semistream.errors import CorruptPageError, MasterError, OptionError
from semistream.master.files import ReadFile
from semistream.master.format import aligned, checksum

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.master.store import Master

__all__ = ["PageReader", "reader_kind"]


class PageReader(ABC):
    """Brings parts of a master into an operator's disk buffer (the papers' D_B).

    A batch that `load` gave is valid until the next call: its memory is the buffer's.
    """

    flags: ClassVar[int] = 0
    """How the pages file is opened."""

    def __init__(self, master: Master, parts: int) -> None:  # noqa: ARG002 - see _DirectReader
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
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the disk buffer holds now."""

    @abstractmethod
    def _fetch(self, start: int, length: int) -> pa.Buffer:
        """Give the bytes of the pages file from ``start`` on, in one read."""

    def load(self, part: int, count: int) -> list[pa.RecordBatch]:
        """Read ``count`` neighbouring parts with one call to the operating system."""
        index = self._index
        start = int(index.offset[part])
        end = int(index.offset[part + count - 1]) + aligned(int(index.length[part + count - 1]))
        data = self._fetch(start, end - start)
        self.reads += 1
        self.bytes_read += end - start
        return [self._parse(data, start, p) for p in range(part, part + count)]

    def _parse(self, data: pa.Buffer, start: int, part: int) -> pa.RecordBatch:
        offset, length = int(self._index.offset[part]), int(self._index.length[part])
        content = data.slice(offset - start, aligned(length))
        self._verify(content, part)
        return pa.ipc.read_record_batch(content, self._schema)

    def _verify(self, content: pa.Buffer, part: int) -> None:
        if checksum(content) != int(self._index.checksum[part]):
            self._refuse(int(self._index.offset[part]), "is damaged, its checksum differs")

    def _refuse(self, byte: int, what: str) -> None:
        page = self._index.page_at(byte)
        msg = f"{self._file.path}: {page} (byte {byte:,}) {what}; build the master again"
        raise CorruptPageError(msg)


class _MappedReader(PageReader):
    """Pages of a memory-mapped file; each checksum is verified once."""

    def __init__(self, master: Master, parts: int) -> None:
        super().__init__(master, parts)
        self._data = self._file.mapped()
        self._verified = np.zeros(len(self._index.code), dtype=np.bool_)
        self._current = 0

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
    """Pages read past the operating system's cache into a buffer of our own."""

    flags = os.O_DIRECT

    def __init__(self, master: Master, parts: int) -> None:
        super().__init__(master, parts)
        size = max(1, master.statistics.largest_part * parts)
        self._memory = private_memory(size)  # aligned, as O_DIRECT wants it
        self._buffer = pa.py_buffer(self._memory)

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
        return len(self._memory)

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        got = self._file.read_into(memoryview(self._memory)[:length], start)
        if got != length:
            self._refuse(start + got, "is cut off")
        return self._buffer


_KINDS: dict[str, type[PageReader]] = {"mapped": _MappedReader, "direct": _DirectReader}


def reader_kind(read: str) -> type[PageReader]:
    """Give the reader that this option of `open_master` names."""
    if read not in _KINDS:
        raise OptionError.unknown("read", read, _KINDS)
    return _KINDS[read]
