"""Building a master table: encode keys, sort out of core, cut pages, publish."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.master.build.pages import PageWriter
from semistream.master.build.sort import ExternalSort
from semistream.master.build.target import Origin, Target, check_sizes
from semistream.master.files.drafts import Draft
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.master.files.master import FileMaster
from semistream.master.lake.kinds import find_table, is_table
from semistream.master.source import Rows, Source

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["Progress", "build_from_rows", "report_writes"]


@dataclass(frozen=True)
class Progress:
    """The progress of a build."""

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
    size, room = check_sizes(page_bytes, memory, path)
    table = find_table(source, version, columns) if is_table(source) else None
    rows = table.rows(room // 16) if table else Rows.of(source)
    target = Target.of(path, rows.reader.schema, key, size)
    origin = Origin(table.note if table else {})
    with target.building():
        _Build(rows, target, origin, room, progress).run(with_filter)
    return FileMaster.current(target.folder)


def report_writes(progress: Callable[[Progress], None], total: int) -> Callable[[int], None]:
    """Return a callback for rows that were written, which reports them in all."""
    done = 0

    def report(rows: int) -> None:
        nonlocal done
        done += rows
        progress(Progress("write", done, total))

    return report


@dataclass
class _Build:
    """One build: its source and its target."""

    rows: Rows
    target: Target
    origin: Origin
    memory: int
    progress: Callable[[Progress], None]

    def run(self, with_filter: bool) -> None:
        read, memory, target = 0, self.memory, self.target
        with closing(ExternalSort(target.page_schema, memory, target.folder)) as sort:
            for count, batch in self.rows.encoded(target.keys, memory):
                read += count
                sort.add(batch)
                self.progress(Progress("read", read, self.rows.total))
            self._write(sort, with_filter, null_keys=read - sort.rows)

    def _write(self, sort: ExternalSort, with_filter: bool, null_keys: int) -> None:
        words = filter_words(sort.rows) if with_filter else 0
        keys = KeyFilter.zeros(KeyFilter.affordable(words, sort.rows, self.memory // 4))
        with Draft(self.target.folder) as pages:
            writer = PageWriter(pages.file, self.target.page_schema, self.target.page_bytes)
            for batch in sort.merged(report_writes(self.progress, sort.rows)):
                codes = writer.add(batch)
                if keys.nbytes:
                    keys.add(codes)
            writer.finish()
            counts = writer.counts(null_keys)
            self.target.publish(pages, writer.index, counts, keys, self.origin)
