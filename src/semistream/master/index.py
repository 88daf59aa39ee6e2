"""The index of a master: where each part of a page lies, and what it must be."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import CorruptPageError
from semistream.master.format import aligned, checksum

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.master.files import ReadFile

__all__ = ["Index", "IndexWriter"]

_LINE = struct.Struct("<qqQiii?")
_COLUMNS = np.dtype(
    [
        ("code", "<i8"),  # of the part's first row
        ("offset", "<i8"),
        ("checksum", "<u8"),  # of the part with its padding
        ("length", "<i4"),  # without padding
        ("rows", "<i4"),
        ("widest", "<i4"),  # bytes of the part's largest row
        ("starts", "?"),  # a page; false where it goes on
    ]
)
LONGEST = 2**31 - 1
"""Bytes that a part can have."""


class IndexWriter:
    """Collects the lines of an index, 37 bytes each."""

    def __init__(self) -> None:
        self.end = 0
        """Where the next part begins."""
        self._lines = bytearray()

    def add(self, *line: int) -> None:
        """Add a part: its code, offset, checksum, length, rows, widest row, whether it starts."""
        self._lines += _LINE.pack(*line)
        self.end = line[1] + aligned(line[3])

    def extend(self, lines: bytes) -> None:
        """Add the lines of another index, whose pages are put behind these."""
        if lines:
            moved = np.frombuffer(bytearray(lines), dtype=_COLUMNS)
            moved["offset"] += self.end
            self._lines += moved.tobytes()
            self.end = int(moved["offset"][-1]) + aligned(int(moved["length"][-1]))

    @property
    def lines(self) -> npt.NDArray[np.void]:
        """All lines, as a structured array."""
        return np.frombuffer(self._lines, dtype=_COLUMNS)

    def dump(self) -> bytes:
        """Give the content of the index file: an Arrow IPC file of one record batch."""
        lines = self.lines
        columns = [pa.array(np.ascontiguousarray(lines[name])) for name in _COLUMNS.names or ()]
        batch = pa.RecordBatch.from_arrays(columns, names=list(_COLUMNS.names or ()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as file:
            file.write_batch(batch)
        return bytes(sink.getvalue())


@dataclass(frozen=True, eq=False)
class Index:
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
    def load(cls, file: ReadFile, expected: int) -> Index:
        """Map an index file that has the expected checksum."""
        data = file.mapped()
        if checksum(data) != expected:
            msg = f"{file.path}: the index is damaged, its checksum differs; build the master again"
            raise CorruptPageError(msg)
        batch = pa.ipc.open_file(data).get_batch(0)
        starts = batch.column("starts").to_numpy(zero_copy_only=False)
        first = None if starts.all() else np.flatnonzero(starts)
        columns = {n: batch.column(n).to_numpy() for n in batch.schema.names if n != "starts"}
        pages = columns["code"] if first is None else columns["code"][first]
        return cls(**columns, page_code=pages, first_part=first)

    def parts(self, page: int) -> range:
        """Give the parts of a page."""
        first = self.first_part
        if first is None:
            return range(page, page + 1)
        end = int(first[page + 1]) if page + 1 < len(first) else len(self.code)
        return range(int(first[page]), end)

    def bounds(self, parts: range) -> tuple[int, int]:
        """Give where neighbouring parts begin and end in the pages file."""
        last = parts[-1]
        return int(self.offset[parts[0]]), int(self.offset[last]) + aligned(int(self.length[last]))

    def lines(self, parts: range) -> bytes:
        """Give the lines of neighbouring parts, for a file that begins with them."""
        lines, some = np.empty(len(parts), dtype=_COLUMNS), slice(parts.start, parts.stop)
        for name in ("code", "offset", "checksum", "length", "rows", "widest"):
            lines[name] = getattr(self, name)[some]
        lines["offset"] -= self.offset[parts[0]]
        first = self.first_part
        lines["starts"] = True if first is None else np.isin(parts, first)
        return lines.tobytes()

    def page_at(self, byte: int) -> str:
        """Say which page holds this byte of the pages file, for an error message."""
        part = max(0, int(np.searchsorted(self.offset, byte, side="right")) - 1)
        first = self.first_part
        page = part if first is None else int(np.searchsorted(first, part, side="right")) - 1
        whole = len(self.parts(page)) == 1
        return f"page {page}" if whole else f"page {page}, part {part - self.parts(page)[0]},"
