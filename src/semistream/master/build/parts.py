"""A distributed build: many processes write parts of sorted pages, one joins them.

Each process writes files of its own into a staging folder that all of them see. Names are never
used twice, so that a task may run again, or twice at once: only the parts that are passed to
`join_parts` count.
"""

from __future__ import annotations

import socket
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING

import numpy as np

from semistream.errors import MasterError
from semistream.master.build.pages import Counts, PageWriter
from semistream.master.files.drafts import Draft
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.master.files.index import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from semistream.master.build.target import Target
    from semistream.master.source import Rows

__all__ = ["Part", "Staging", "join_parts", "write_part"]

_KINDS = ("pages", "lines", "codes")
_CODES_AT_ONCE = 1 << 20  # 8 MB


@dataclass(frozen=True)
class Part:
    """The rows of a range of codes, in files of the staging folder."""

    name: str
    rows: int
    first: int
    """The code of the first row; 0 where there is none."""
    last: int
    counts: Counts


@dataclass(frozen=True)
class Staging:
    """The folder of the parts, and how they are written."""

    folder: Path
    target: Target
    memory: int
    filter: bool

    def file(self, name: str, kind: str) -> Path:
        """Return the path of one of a part's files."""
        return self.folder / f"{name}.{kind}"

    def create(self, name: str, kind: str) -> IO[bytes]:
        """Open a new file of a part."""
        try:
            return self.file(name, kind).open("xb", buffering=1 << 20)
        except FileNotFoundError:
            msg = (
                f"{self.folder} is not there on {socket.gethostname()}: the build has ended, or "
                "the driver and this executor do not share the file system; choose a path that all "
                "of them mount"
            )
            raise MasterError(msg) from None

    def remove(self, name: str) -> None:
        """Remove the files of a part."""
        for kind in _KINDS:
            self.file(name, kind).unlink(missing_ok=True)


def write_part(rows: Rows, staging: Staging) -> Part:
    """Write rows that come in the order of their codes; those without a key are counted only."""
    name = uuid.uuid4().hex
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(staging.create(name, kind)) for kind in _KINDS]
            part = _write(rows, staging, name, files)
    except BaseException:
        staging.remove(name)
        raise
    if not part.rows:
        staging.remove(name)
    return part


def _write(rows: Rows, staging: Staging, name: str, files: Sequence[IO[bytes]]) -> Part:
    pages, lines, codes = files
    target, read, last = staging.target, 0, None
    writer = PageWriter(pages, target.page_schema, target.page_bytes)
    for count, batch in rows.encoded(target.keys, staging.memory):
        read += count
        last = _last_in_order(batch, last)
        new = writer.add(batch)
        if staging.filter:
            codes.write(np.ascontiguousarray(new).data)
    writer.finish()
    index = writer.index.lines
    lines.write(index.tobytes())
    kept = int(index["rows"].sum())
    first = int(index["code"][0]) if kept else 0
    return Part(name, kept, first, last or 0, writer.counts(read - kept))


def _last_in_order(batch: pa.RecordBatch, last: int | None) -> int | None:
    """Return the last code of rows that follow ``last``; refuse rows out of order."""
    codes = batch.column(0).to_numpy()
    if not len(codes):
        return last
    if (last is not None and codes[0] < last) or (codes[1:] < codes[:-1]).any():
        msg = "rows came out of order: what sorted them orders keys in another way than this build"
        raise MasterError(msg)
    return int(codes[-1])


def join_parts(parts: Iterable[Part], staging: Staging, report: Callable[[int], None]) -> None:
    """Make a master of all parts and publish it; ``report`` is called with the rows of each.

    Only one part at a time is on disk twice, and none is in memory.
    """
    parts = list(parts)
    filled = sorted((part for part in parts if part.rows), key=lambda part: part.first)
    if any(before.last >= after.first for before, after in pairwise(filled)):
        msg = "two parts have rows of the same range of keys: the rows were not divided by key"
        raise MasterError(msg)
    counts = sum((part.counts for part in parts), Counts())
    words = filter_words(counts.values) if staging.filter else 0
    words = KeyFilter.affordable(words, counts.values, staging.memory // 4)
    lines, keys = IndexWriter(), KeyFilter.zeros(words)
    with Draft(staging.target.folder) as pages:
        for part in filled:
            _append(part, staging, pages, lines)
            if keys.nbytes:
                _add_codes(keys, part, staging)
            staging.remove(part.name)
            report(part.rows)
        staging.target.publish(pages, lines, counts, keys)


def _append(part: Part, staging: Staging, pages: Draft, lines: IndexWriter) -> None:
    path = staging.file(part.name, "pages")
    pages.append(path)
    before = len(lines.lines)
    lines.extend(staging.file(part.name, "lines").read_bytes())
    rows = int(lines.lines["rows"][before:].sum())
    if pages.file.tell() != lines.end or rows != part.rows:
        raise _truncated(path)


def _add_codes(keys: KeyFilter, part: Part, staging: Staging) -> None:
    """Add a part's codes to the filter; one that lacks some would deny rows that are there."""
    path, count = staging.file(part.name, "codes"), 0
    with path.open("rb") as file:
        while len(codes := np.fromfile(file, dtype=np.int64, count=_CODES_AT_ONCE)):
            keys.add(codes)
            count += len(codes)
    if count != part.counts.values:
        raise _truncated(path)


def _truncated(path: Path) -> MasterError:
    return MasterError(f"{path}: not all of this part came to be on disk; build the master again")
