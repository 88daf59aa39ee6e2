"""An opened master table, and the readers that bring its pages to an operator."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import CorruptPageError, MasterError, OptionError
from semistream.keys import Keys
from semistream.master.filter import KeyFilter
from semistream.master.format import Manifest, Statistics, aligned, checksum, page_schema
from semistream.units import format_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Master", "PageReader", "open_master"]


@dataclass(frozen=True)
class _Index:
    """The lines of the index file; all arrays lie in the mapped file."""

    code: npt.NDArray[np.int64]
    page_code: npt.NDArray[np.int64]
    """The first code of each page."""
    offset: npt.NDArray[np.int64]
    checksum: npt.NDArray[np.uint64]
    length: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    widest: npt.NDArray[np.int32]
    first_part: npt.NDArray[np.int64] | None
    """The first part of each page; None where every page has one part."""

    @classmethod
    def load(cls, path: Path, expected: int) -> _Index:
        data = pa.memory_map(str(path)).read_buffer()
        if checksum(data) != expected:
            msg = f"{path}: the index is damaged (checksum differs); build the master again"
            raise CorruptPageError(msg)
        batch = pa.ipc.open_file(data).get_batch(0)
        starts = batch.column("starts").to_numpy(zero_copy_only=False)
        first = None if starts.all() else np.flatnonzero(starts)
        names = ("code", "offset", "checksum", "length", "rows", "widest")
        columns = {name: batch.column(name).to_numpy() for name in names}
        pages = columns["code"] if first is None else columns["code"][first]
        return cls(**columns, page_code=pages, first_part=first)


@dataclass(frozen=True)
class Master:
    """A master table on disk, opened for reading; make one with `open_master`.

    It holds no rows: the index is mapped, pages are read by the operators that need them.
    """

    path: Path
    read: str
    manifest: Manifest = field(repr=False)
    keys: Keys = field(repr=False)
    index: _Index = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns as they were given to the build, key included."""
        return self.manifest.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self.manifest.key

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.manifest.statistics.rows

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return self.manifest.statistics.pages

    @property
    def row_bytes(self) -> float:
        """The mean bytes of a row, as pages hold it."""
        return self.manifest.statistics.bytes / max(1, self.rows)

    @property
    def snapshot(self) -> str:
        """An id of the content: it changes when the rows, or their order, change."""
        return self.manifest.snapshot

    @property
    def statistics(self) -> Statistics:
        """What the build counted."""
        return self.manifest.statistics

    @property
    def page_schema(self) -> pa.Schema:
        """The columns as pages hold them: the code, then plain types."""
        return page_schema(self.schema, self.keys)

    def describe(self) -> str:
        """Say in a few lines what this master is.

        Examples
        --------
        >>> import tempfile, semistream as ss
        >>> table = pa.table({"id": [1, 2, 2], "name": ["pen", "ink", "nib"]})
        >>> print(ss.build_master(table, tempfile.mkdtemp(), key="id").describe())
        master   ...
        key      id (order of value)
        rows     3 of 16 B, 48 B in all, 0 with a null key left out
        values   2, at most 2 rows each
        pages    1 of at most 128 KB (4 KB on disk)
        filter   8 B
        columns  id: int64, name: string
        """
        s, m = self.statistics, self.manifest
        order = "value" if self.keys.exact else "hash"
        size = format_bytes(m.filter_words * 8) if m.filter_words else "none"
        return "\n".join(
            [
                f"master   {self.path} (snapshot {self.snapshot[:8]}, read {self.read})",
                f"key      {', '.join(self.key)} (order of {order})",
                f"rows     {s.rows:,} of {self.row_bytes:.0f} B, {format_bytes(s.bytes)} in all, "
                f"{s.null_keys:,} with a null key left out",
                f"values   {s.values:,}, at most {s.most_duplicates:,} rows each",
                f"pages    {s.pages:,} of at most {format_bytes(m.page_bytes)} "
                f"({format_bytes(m.pages_bytes)} on disk)",
                f"filter   {size}",
                f"columns  {', '.join(f'{c.name}: {c.type}' for c in self.schema)}",
            ]
        )

    def page_of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Give the page that holds each code if any does, −1 where the index tells that none."""
        pages = np.searchsorted(self.index.page_code, codes, side="right").astype(np.int32)
        pages -= 1
        return pages

    def parts(self, page: int) -> range:
        """Give the parts of a page: one, but for a join value larger than a page."""
        first = self.index.first_part
        if first is None:
            return range(page, page + 1)
        end = int(first[page + 1]) if page + 1 < len(first) else len(self.index.code)
        return range(int(first[page]), end)

    def reader(self, parts: int = 1) -> PageReader:
        """Give a reader whose disk buffer has room for so many parts."""
        kind = {"mapped": _MappedReader, "direct": _DirectReader}[self.read]
        return kind(self, parts)

    def load_filter(self, words: int) -> KeyFilter:
        """Give the key filter, folded to so many 64-bit words."""
        stored = np.memmap(self._file("filter"), dtype=np.uint64, mode="r")
        return KeyFilter(stored).folded(words)

    def verify(self) -> int:
        """Read every page, compare checksums, give the number of pages; damage is an error."""
        reader = self.reader()
        for part in range(len(self.index.code)):
            reader.load(part, 1)
        return self.pages

    def _file(self, kind: str) -> Path:
        return self.path / f"{self.snapshot}.{kind}"


def open_master(path: str | os.PathLike[str], read: str = "mapped") -> Master:
    """Open a master table.

    Parameters
    ----------
    path
        The folder that `build_master` wrote.
    read
        ``"mapped"``: memory-mapped, the operating system's page cache helps. ``"direct"``: real
        reads (``O_DIRECT``) into the operator's own buffers, nothing is kept outside its budget.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> ss.open_master(path).rows
    2
    """
    if read not in {"mapped", "direct"}:
        raise OptionError.unknown("read", read, ["mapped", "direct"])
    folder = Path(path)
    manifest = Manifest.load(folder)
    keys = Keys.of(manifest.schema, manifest.key)
    _check_files(folder, manifest)
    index = _Index.load(folder / f"{manifest.snapshot}.index", manifest.index_checksum)
    master = Master(folder, read, manifest, keys, index)
    _check_sizes(master)
    return master


def _check_files(folder: Path, manifest: Manifest) -> None:
    kinds = ["pages", "index", *(["filter"] if manifest.filter_words else [])]
    for kind in kinds:
        path = folder / f"{manifest.snapshot}.{kind}"
        if not path.exists():
            msg = f"{path}: this file of the master is missing; build the master again"
            raise MasterError(msg)


def _check_sizes(master: Master) -> None:
    """Refuse cut files; reading a mapped file that is too short kills the process (SIGBUS)."""
    wanted = {"pages": master.manifest.pages_bytes, "filter": master.manifest.filter_words * 8}
    for kind, size in wanted.items():
        path = master.path / f"{master.snapshot}.{kind}"
        found = path.stat().st_size if size else 0
        if found != size:
            page = np.searchsorted(master.index.offset, found, side="right") - 1
            where = f", so that page {page} is not whole" if kind == "pages" else ""
            msg = f"{path}: {found:,} bytes of {size:,} are there{where}; build the master again"
            raise CorruptPageError(msg)


class PageReader(ABC):
    """Brings parts of a master into an operator's disk buffer (the papers' D_B).

    A batch that `load` gave is valid until the next call: its memory is the buffer's.
    """

    def __init__(self, master: Master, parts: int) -> None:
        self.reads = 0
        self.bytes_read = 0
        self._path = master.path / f"{master.snapshot}.pages"
        self._index = master.index
        self._schema = master.page_schema
        self._largest = master.statistics.largest_part * parts

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the disk buffer holds now."""

    @abstractmethod
    def _fetch(self, start: int, length: int) -> pa.Buffer:
        """Give the bytes of the pages file from ``start`` on, in one read."""

    @abstractmethod
    def _trusted(self, part: int) -> bool:
        """Whether the part's checksum was found right already, and cannot change since."""

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
        index = self._index
        content = data.slice(int(index.offset[part]) - start, int(index.length[part]))
        if not self._trusted(part) and checksum(content) != int(index.checksum[part]):
            msg = (
                f"{self._path}: page {part} (byte {int(index.offset[part]):,}) is damaged, its "
                "checksum differs; build the master again"
            )
            raise CorruptPageError(msg)
        return pa.ipc.read_record_batch(content, self._schema)


class _MappedReader(PageReader):
    """Pages of a memory-mapped file; each checksum is verified once."""

    def __init__(self, master: Master, parts: int) -> None:
        super().__init__(master, parts)
        empty = master.manifest.pages_bytes == 0
        self._data = pa.py_buffer(b"") if empty else pa.memory_map(str(self._path)).read_buffer()
        self._seen = np.zeros(len(self._index.code), dtype=np.bool_)
        self._current = 0

    @property
    def nbytes(self) -> int:
        # Mapped pages are the operating system's; they are counted as if they were ours.
        return self._current + self._seen.nbytes

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        self._current = length
        return self._data.slice(start, length)

    def _trusted(self, part: int) -> bool:
        seen, self._seen[part] = bool(self._seen[part]), True
        return seen


class _DirectReader(PageReader):
    """Pages read past the operating system's cache into a buffer of our own."""

    def __init__(self, master: Master, parts: int) -> None:
        super().__init__(master, parts)
        try:
            self._handle = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
        except OSError as error:
            msg = f"{self._path}: no direct reads on this file system; open it with read='mapped'"
            raise MasterError(msg) from error
        self._memory = mmap.mmap(-1, max(1, self._largest))  # aligned, as O_DIRECT wants it
        self._buffer = pa.py_buffer(self._memory)

    @property
    def nbytes(self) -> int:
        return len(self._memory)

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        got = os.preadv(self._handle, [memoryview(self._memory)[:length]], start)
        if got != length:
            msg = f"{self._path}: cut at byte {start + got:,}; build the master again"
            raise CorruptPageError(msg)
        return self._buffer

    def _trusted(self, part: int) -> bool:  # noqa: ARG002 - what the disk gives may change
        return False

    def __del__(self) -> None:
        if (handle := getattr(self, "_handle", None)) is not None:
            os.close(handle)
