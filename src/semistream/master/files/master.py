"""An opened master table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from semistream.arrow.keys import Keys
from semistream.errors import CorruptPageError, MasterError
from semistream.kernels.search import pages_of
from semistream.master.arguments import master_folder
from semistream.master.files.drafts import ReadFile
from semistream.master.files.filter import KeyFilter
from semistream.master.files.format import Manifest, Statistics, page_schema
from semistream.master.files.index import Index
from semistream.master.files.reader import PageReader, reader_kind
from semistream.master.snapshots.snapshots import find_snapshot, missing_snapshot
from semistream.units import format_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["Master", "open_master"]


@dataclass(frozen=True, eq=False)
class Master:
    """A master table on disk, opened for reading; make one with `open_master`.

    It holds no rows: the index is mapped, pages are read by the operators that need them. Its files
    stay open, so that it remains readable, as it was, when a build replaces the master on disk.
    """

    path: Path
    read: str
    manifest: Manifest = field(repr=False)
    keys: Keys = field(repr=False)
    index: Index = field(repr=False)
    pages_file: ReadFile = field(repr=False)
    filter_file: ReadFile | None = field(repr=False)
    chosen: bool = field(default=False, repr=False)
    """Whether this snapshot was asked for, not just the current one."""
    origin: str = field(default="", repr=False)
    """Where it is a copy from, if it is one."""

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
    def most_rows(self) -> int:
        """How many rows there may be."""
        return self.rows

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

    @cached_property
    def page_schema(self) -> pa.Schema:
        """The columns as pages hold them: the code, then plain types."""
        return page_schema(self.schema, self.keys)

    def describe(self) -> str:
        """Say in a few lines what this master is.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, semistream as ss
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

    def only(self, names: Sequence[str]) -> Master:  # noqa: ARG002 - pages are read as a whole
        """Return the master as a join reads it that wants the key and these columns."""
        return self

    def page_of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Give the page that holds each code if any does, −1 where the index tells that none."""
        pages = np.empty(len(codes), dtype=np.int32)
        pages_of(codes, self.index.page_code, pages)
        return pages

    def parts(self, page: int) -> range:
        """Give the parts of a page: one, but for a join value larger than a page."""
        return self.index.parts(page)

    def reader(self, parts: int = 1, run: int | None = None) -> PageReader:
        """Give a reader whose disk buffer has room for so many parts, read ``run`` at a time."""
        return reader_kind(self.read)(self, parts, run or parts)

    def load_filter(self, words: int) -> KeyFilter:
        """Give the key filter, folded to so many 64-bit words."""
        if self.filter_file is None:
            msg = f"{self.path}: this master was built without a filter"
            raise MasterError(msg)
        stored = self.manifest.filter_words, self.manifest.filter_checksum
        return KeyFilter.load(self.filter_file, stored, words)

    def verify(self) -> int:
        """Read all pages and the filter, return the number of pages; damage is an error.

        So is a filter that lacks a code: rows that are there would come out as absent.
        """
        reader, words = self.reader(), self.manifest.filter_words
        keys = self.load_filter(words) if words else None
        for part in range(len(self.index.code)):
            [rows] = reader.load(part, 1)
            if keys is not None and not keys.may_contain(rows.column(0).to_numpy()).all():
                msg = (
                    f"{self.path / self.manifest.name('filter')}: the filter lacks keys of "
                    f"{self.index.page_at(int(self.index.offset[part]))}; build the master again"
                )
                raise CorruptPageError(msg)
        return self.pages


def open_master(
    path: str | os.PathLike[str], read: str = "mapped", snapshot: str | None = None
) -> Master:
    """Open a master table.

    Parameters
    ----------
    path
        The folder that `build_master` wrote.
    read
        ``"mapped"``: memory-mapped, the operating system's page cache helps; if someone cuts the
        file meanwhile (no build does), the operating system ends the process. ``"direct"``: real
        reads (``O_DIRECT``) into the operator's own buffers, nothing is kept outside its budget.
    snapshot
        The id of a snapshot, of its files, or the beginning of one, where it is not to be the
        current one. Older ones are there only as long as a query may need them:
        ``semistream master snapshots`` lists them.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> ss.open_master(path).rows
    2
    """
    kind, folder = reader_kind(read), master_folder(path)
    if snapshot is not None:
        return _open_chosen(folder, snapshot, kind, read)
    manifest = Manifest.load(folder)
    while True:
        try:
            return _open(folder, manifest, kind, read)
        except FileNotFoundError as error:
            # A build may have replaced the master since the manifest was read.
            newer = Manifest.load(folder)
            if newer.files == manifest.files:
                msg = f"{error.filename}: this file of the master is missing; build it again"
                raise MasterError(msg) from None
            manifest = newer


def _open_chosen(folder: Path, snapshot: str, kind: type[PageReader], read: str) -> Master:
    try:
        return replace(_open(folder, find_snapshot(folder, snapshot), kind, read), chosen=True)
    except FileNotFoundError as error:
        raise missing_snapshot(folder, snapshot) from error


def _open(folder: Path, manifest: Manifest, kind: type[PageReader], read: str) -> Master:
    keys = Keys.of(manifest.schema, manifest.key, manifest.seed)
    index = Index.load(ReadFile(folder / manifest.name("index")), manifest)
    pages = kind.open(folder / manifest.name("pages"))
    found, wanted = pages.size, manifest.pages_bytes
    if found != wanted:  # reading a mapped file that is too short would kill us (SIGBUS)
        where = f": {index.page_at(found)} is not whole" if found < wanted else ""
        msg = f"{pages.path}: {found:,} bytes, not {wanted:,}{where}; build the master again"
        raise CorruptPageError(msg)
    keys_file = ReadFile(folder / manifest.name("filter")) if manifest.filter_words else None
    return Master(folder, read, manifest, keys, index, pages, keys_file)
