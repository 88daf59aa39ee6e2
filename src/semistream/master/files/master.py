"""A master table of files: one snapshot, opened for reading."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from semistream.arrow.keys import Keys
from semistream.errors import CorruptPageError, MasterError, MasterNotFoundError
from semistream.kernels.search import pages_of
from semistream.master.files.drafts import ReadFile
from semistream.master.files.filter import KeyFilter
from semistream.master.files.format import GENERATIONS, Manifest
from semistream.master.files.index import Index
from semistream.master.files.reader import PageReader, reader_kind
from semistream.master.protocol import Master
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["FileMaster"]


@dataclass(frozen=True, eq=False, kw_only=True)
class FileMaster(Master):
    """A master table on disk: pages of rows in the order of their codes, and an index of them.

    The index is mapped; pages are read by the operators that need them. Its files stay open, so
    that it remains readable, as it was, when a build replaces the master on disk.
    """

    is_live: ClassVar[bool] = False
    path: Path
    read: str
    """How pages are read: ``"mapped"`` or ``"direct"``."""
    manifest: Manifest = field(repr=False)
    index: Index = field(repr=False)
    pages_file: ReadFile = field(repr=False)
    filter_file: ReadFile | None = field(repr=False)
    chosen: bool = field(default=False, repr=False)
    """Whether the caller named this snapshot, rather than taking the current one."""
    origin: str = field(default="", repr=False)
    """Path of the master that this is a local copy of, if it is one."""

    @classmethod
    def current(cls, folder: Path, read: str = "mapped") -> FileMaster:
        """Open the current snapshot of the master in a folder."""
        manifest = Manifest.load(folder)
        while True:
            try:
                return cls.at(folder, manifest, read)
            except FileNotFoundError as error:
                # A build may have replaced the master since the manifest was read.
                newer = Manifest.load(folder)
                if newer.files == manifest.files:
                    msg = f"{error.filename}: this file of the master is missing; build it again"
                    raise MasterError(msg) from None
                manifest = newer

    @classmethod
    def at(cls, folder: Path, manifest: Manifest, read: str, chosen: bool = False) -> FileMaster:
        """Open the snapshot that a manifest describes."""
        kind = reader_kind(read)
        index = Index.load(ReadFile(folder / manifest.name("index")), manifest)
        pages = kind.open(folder / manifest.name("pages"))
        size, expected = pages.size, manifest.pages_bytes
        if size != expected:  # reading a mapped file that is too short would kill us (SIGBUS)
            where = f": {index.page_at(size)} is not whole" if size < expected else ""
            msg = f"{pages.path}: {size:,} bytes, not {expected:,}{where}; build the master again"
            raise CorruptPageError(msg)
        return cls(
            keys=Keys.of(manifest.schema, manifest.key, manifest.seed),
            schema=manifest.schema,
            statistics=manifest.statistics,
            path=folder,
            read=read,
            manifest=manifest,
            index=index,
            pages_file=pages,
            filter_file=ReadFile(folder / manifest.name("filter"))
            if manifest.filter_words
            else None,
            chosen=chosen,
        )

    @property
    def snapshot(self) -> str:
        """An id of the content: it changes when the rows, or their order, change."""
        return self.manifest.snapshot

    @property
    def is_mapped(self) -> bool:
        """Whether pages lie in mapped memory, so that rows can be looked up there at once."""
        return self.read == "mapped"

    @property
    def filter_words(self) -> int:
        """Length of the stored key filter in 64-bit words, 0 where there is none."""
        return self.manifest.filter_words

    @property
    def identity(self) -> str:
        """Where the master is, or where it is a copy from."""
        return self.origin or _resolved(self.path)

    def changes_since(self, most: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        """Yield earlier snapshots, the newest first, with the sorted codes changed since each."""
        codes, manifest = np.empty(0, dtype=np.int64), self.manifest
        with suppress(FileNotFoundError, MasterNotFoundError, CorruptPageError):
            for _ in range(GENERATIONS):
                if not manifest.parent or len(codes) + manifest.changed > most:
                    return
                codes = np.union1d(codes, manifest.changes(self.path))
                yield manifest.parent.partition("-")[0], codes
                manifest = Manifest.load(self.path, f"{manifest.parent}.manifest")

    def describe(self) -> str:
        """Describe this master in a few lines.

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

    def page_of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the page that holds each code if any does; −1 where the index excludes it."""
        pages = np.empty(len(codes), dtype=np.int32)
        pages_of(codes, self.index.page_code, pages)
        return pages

    def parts(self, page: int) -> range:
        """Return the parts of a page: one, but for a join value larger than a page."""
        return self.index.parts(page)

    def reader(self, parts: int = 1, run: int | None = None) -> PageReader:
        """Return a reader whose disk buffer has room for so many parts, read ``run`` at a time."""
        return reader_kind(self.read)(self, parts, run or parts)

    def load_filter(self, words: int) -> KeyFilter:
        """Read the key filter, folded to so many 64-bit words."""
        if self.filter_file is None:
            msg = f"{self.path}: this master was built without a filter"
            raise MasterError(msg)
        stored = self.manifest.filter_words, self.manifest.filter_checksum
        return KeyFilter.load(self.filter_file, stored, words)

    def verify(self) -> int:
        """Read all pages and the filter; return the number of pages, raise on damage.

        A filter that lacks a code is damage: rows that are there would come out as absent.
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


@cache  # a join asks at every batch
def _resolved(path: Path) -> str:
    return str(path.resolve())
