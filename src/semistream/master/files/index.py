"""The index of a master: offset, length, rows and checksum of each part of a page."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from semistream.errors import CorruptPageError
from semistream.kernels.structure import index_fits
from semistream.master.files.format import aligned, checksum

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.master.files.drafts import ReadFile
    from semistream.master.files.format import Manifest

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
_SCHEMA = pa.schema(
    [
        (name, pa.bool_() if name == "starts" else pa.from_numpy_dtype(_COLUMNS[name]))
        for name in _COLUMNS.names or ()
    ]
)
LONGEST = 2**31 - 1
"""Bytes that a part can have: its length is a 32-bit integer."""


class IndexWriter:
    """The lines of an index under construction, 37 bytes each."""

    def __init__(self) -> None:
        self.end = 0
        """Where the next part begins."""
        self._lines = bytearray()

    def add(self, *line: int) -> None:
        """Add a part: its code, offset, checksum, length, rows, widest row, whether it starts."""
        self._lines += _LINE.pack(*line)
        self.end = line[1] + aligned(line[3])

    def extend(self, lines: bytes) -> None:
        """Add the lines of another index, whose pages are appended to these."""
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
        """Write the content of the index file: an Arrow IPC file of one record batch."""
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

    def __post_init__(self) -> None:
        for values in (self.code, self.page_code, self.rows):
            values.flags.writeable = False  # as in the file: else kernels would be compiled anew

    @classmethod
    def load(cls, file: ReadFile, manifest: Manifest) -> Index:
        """Map the index file of a snapshot, and check that its lines follow from each other."""
        data = file.mapped()
        if checksum(data) != manifest.index_checksum:
            _refuse(file, "its checksum differs")
        batch = _lines(file, data)
        starts = batch.column("starts").to_numpy(zero_copy_only=False)
        columns = {n: batch.column(n).to_numpy() for n in batch.schema.names if n != "starts"}
        _check(file, columns, starts, manifest)
        first = None if starts.all() else np.flatnonzero(starts)
        pages = columns["code"] if first is None else columns["code"][first]
        return cls(**columns, page_code=pages, first_part=first)

    def first_parts(
        self, pages: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the first part of each page, and whether it has several."""
        if self.first_part is None:
            return pages, np.zeros(len(pages), dtype=np.bool_)
        ends = np.append(self.first_part[1:], len(self.code))
        return self.first_part[pages], ends[pages] - self.first_part[pages] > 1

    def parts(self, page: int) -> range:
        """Return the parts of a page."""
        first = self.first_part
        if first is None:
            return range(page, page + 1)
        end = int(first[page + 1]) if page + 1 < len(first) else len(self.code)
        return range(int(first[page]), end)

    def bounds(self, parts: range) -> tuple[int, int]:
        """Return where neighbouring parts begin and end in the pages file."""
        last = parts[-1]
        return int(self.offset[parts[0]]), int(self.offset[last]) + aligned(int(self.length[last]))

    def lines(self, parts: range) -> bytes:
        """Return the lines of neighbouring parts, for a file that begins with them."""
        lines, some = np.empty(len(parts), dtype=_COLUMNS), slice(parts.start, parts.stop)
        for name in ("code", "offset", "checksum", "length", "rows", "widest"):
            lines[name] = getattr(self, name)[some]
        lines["offset"] -= self.offset[parts[0]]
        first = self.first_part
        lines["starts"] = True if first is None else np.isin(parts, first)
        return lines.tobytes()

    def page_at(self, byte: int) -> str:
        """Name the page that holds this byte of the pages file, for an error message."""
        part = max(0, int(np.searchsorted(self.offset, byte, side="right")) - 1)
        first = self.first_part
        page = part if first is None else int(np.searchsorted(first, part, side="right")) - 1
        whole = len(self.parts(page)) == 1
        return f"page {page}" if whole else f"page {page}, part {part - self.parts(page)[0]},"


def _refuse(file: ReadFile, why: str) -> NoReturn:
    msg = f"{file.path}: the index is damaged, {why}; build the master again"
    raise CorruptPageError(msg)


def _lines(file: ReadFile, data: pa.Buffer) -> pa.RecordBatch:
    """Return the record batch of an index file; its columns lie in the file."""
    try:
        batch = pa.ipc.open_file(data).get_batch(0)
        batch.validate()
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        _refuse(file, str(error))
    if batch.schema != _SCHEMA or any(column.null_count for column in batch.columns):
        _refuse(file, "its columns are not those of an index")
    low, high = data.address, data.address + data.size
    values = [column.buffers()[1] for column in batch.columns]
    if batch.num_rows and any(not low <= b.address <= high - b.size for b in values):
        _refuse(file, "its columns do not lie in it")  # compressed ones, say
    return batch


def _check(
    file: ReadFile,
    columns: dict[str, npt.NDArray[Any]],
    starts: npt.NDArray[np.bool_],
    manifest: Manifest,
) -> None:
    """Refuse lines that do not follow from each other, or contradict the manifest."""
    c = columns
    part, end = index_fits(c["code"], c["offset"], c["length"], c["rows"], c["widest"], starts)
    if part >= 0:
        _refuse(file, f"part {part} does not follow from those before it")
    counts = {
        "rows": int(columns["rows"].sum(dtype=np.int64)),
        "parts": len(starts),
        "pages": int(np.count_nonzero(starts)),
        "widest_row": int(columns["widest"].max(initial=0)),
        "largest_part": aligned(int(columns["length"].max(initial=0))),
    }
    expected = {name: getattr(manifest.statistics, name) for name in counts}
    if counts != expected or end != manifest.pages_bytes:
        _refuse(file, f"it has {counts} in {end:,} bytes, and the manifest has {expected}")
