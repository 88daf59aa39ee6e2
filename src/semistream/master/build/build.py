"""Building a master table: encode keys, sort out of core, cut pages, publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.master.build.pages import PageWriter
from semistream.master.build.sort import ExternalSort
from semistream.master.build.target import Origin, Target, sizes
from semistream.master.files.drafts import Draft
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.master.files.master import FileMaster
from semistream.master.lake.find import find_table, is_table
from semistream.master.source import Rows, Source
from semistream.names import listed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["Progress", "build_from_rows", "written"]


@dataclass(frozen=True)
class Progress:
    """How far a build has come."""

    phase: str
    """``"read"``, then ``"write"``."""
    rows: int
    total: int | None
    """Rows in all, where they are known: not while a RecordBatchReader is read."""


def build_from_rows(  # noqa: PLR0913 - a build has these parts
    source: Source,
    path: str | os.PathLike[str],
    key: str | Sequence[str],
    *,
    version: int | None,
    columns: Sequence[str] | None,
    page_bytes: int | str,
    with_filter: bool,
    memory: int | str,
    progress: Callable[[Progress], None],
) -> FileMaster:
    """Build a master from Arrow data or a table of files; the arguments are `build_master`'s."""
    names = None if columns is None else listed("columns", columns)
    size, room = sizes(page_bytes, memory)
    table = find_table(source, version, names) if is_table(source) else None
    rows = table.rows(room // 16) if table else Rows.of(source)
    target = Target.of(path, rows.reader.schema, key, size)
    origin = Origin(table.note if table else {})
    with target.building():
        _Build(rows, target, origin, room, progress).run(with_filter)
    return FileMaster.current(target.folder)


def written(progress: Callable[[Progress], None], total: int) -> Callable[[int], None]:
    """Give a function that is told how many more rows were written, and reports it."""
    done = 0

    def passed(rows: int) -> None:
        nonlocal done
        done += rows
        progress(Progress("write", done, total))

    return passed


@dataclass
class _Build:
    """One build: what it reads and where it writes."""

    rows: Rows
    target: Target
    origin: Origin
    memory: int
    progress: Callable[[Progress], None]

    def run(self, with_filter: bool) -> None:
        sort = ExternalSort(self.target.page_schema, self.memory, self.target.folder)
        try:
            null_keys = self._read(sort)
            self._write(sort, with_filter, null_keys)
        finally:
            sort.close()

    def _read(self, sort: ExternalSort) -> int:
        """Encode and sort all rows; give the number of those without a key."""
        read = 0
        for count, batch in self.rows.encoded(self.target.keys, self.memory):
            read += count
            sort.add(batch)
            self.progress(Progress("read", read, self.rows.total))
        return read - sort.rows

    def _write(self, sort: ExternalSort, with_filter: bool, null_keys: int) -> None:
        words = filter_words(sort.rows) if with_filter else 0
        keys = KeyFilter.zeros(KeyFilter.affordable(words, sort.rows, self.memory // 4))
        with Draft(self.target.folder) as pages:
            writer = PageWriter(pages.file, self.target.page_schema, self.target.page_bytes)
            for batch in sort.merged(written(self.progress, sort.rows)):
                codes = writer.add(batch)
                if keys.nbytes:
                    keys.add(codes)
            writer.finish()
            counts = writer.counts(null_keys)
            self.target.publish(pages, writer.index, counts, keys, self.origin)
