"""A new snapshot from an old one and sorted changes: pages that no change touches are copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.types import row_bytes
from semistream.errors import MasterError
from semistream.master.build.pages import PageWriter, ValueCount
from semistream.master.files.drafts import scratch
from semistream.master.lake.table import Scope
from semistream.master.sync.merge import Merged, merged, net, whole_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from semistream.master.files.drafts import Draft
    from semistream.master.files.filter import KeyFilter
    from semistream.master.files.master import FileMaster

__all__ = ["Left", "Rewrite", "Tally"]

_RUN_BYTES = 1 << 20
"""Neighbouring pages that are merged at once: enough that a step costs little of its own."""


@dataclass
class Tally:
    """What a sync did."""

    upserted: int = 0
    deleted: int = 0
    pages_rewritten: int = 0
    pages_copied: int = 0
    bytes_copied: int = 0


@dataclass
class Left:
    """What was counted of the old rows that were read, and so are written anew."""

    bytes: int = 0
    values: int = 0
    most_duplicates: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Count rows of whole pages."""
        count = ValueCount()
        count.add(rows.column(0).to_numpy())
        self.bytes += int(row_bytes(rows).sum())
        self.values += count.values
        self.most_duplicates = max(self.most_duplicates, count.most)


class _Cursor:
    """Blocks of changes, given out by ranges of codes."""

    def __init__(self, blocks: Iterator[pa.RecordBatch]) -> None:
        self._blocks = blocks
        self._block = next(blocks, None)

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """The codes of the next block; none at the end."""
        if self._block is None:
            return np.empty(0, dtype=np.int64)
        return np.asarray(self._block.column(0).to_numpy())

    def until(self, bound: int | None) -> Iterator[pa.RecordBatch]:
        """Give, and pass, all changes of codes below ``bound``; None is no bound."""
        while self._block is not None:
            codes = self.codes
            end = len(codes) if bound is None else int(np.searchsorted(codes, bound))
            if end:
                yield self._block.slice(0, end)
            if end < len(codes):
                self._block = self._block.slice(end)
                return
            self._block = next(self._blocks, None)


class Rewrite:
    """Writes the pages of a new snapshot.

    Pages are at least half full on average, whatever comes and goes: rows that are left when
    copying goes on take the next page in if it fits.
    """

    def __init__(
        self,
        parent: FileMaster,
        pages: Draft,
        filter: KeyFilter,  # noqa: A002 - the word users look for
        scope: Scope,
        passed: Callable[[int], None],
    ) -> None:
        self.tally, self.left = Tally(), Left()
        self.writer = PageWriter(pages.file, parent.page_schema, parent.manifest.page_bytes)
        self.parent, self._pages, self.filter, self._scope = parent, pages, filter, scope
        self._keys = () if parent.keys.exact else parent.keys.names
        self._reader = parent.reader()
        self._passed, self._next = passed, 0
        # Where all pages are compared, those that stay as they are must not fall to a neighbour.
        self._run_bytes = 1 if scope is Scope.ALL else _RUN_BYTES
        self._changed = scratch(parent.path)

    def run(self, changes: Iterable[pa.RecordBatch]) -> None:
        """Apply changes that come sorted by code."""
        blocks = whole_values(changes)
        if self._scope is Scope.ROWS:
            blocks = (block for block in map(net, blocks) if block.num_rows)
        cursor = _Cursor(blocks)
        for pages in self._runs(cursor):
            self._rewrite(pages, cursor)
        self._copy(self.parent.pages)
        self.writer.finish()

    def changed(self) -> npt.NDArray[np.int64]:
        """Give the sorted codes whose rows changed; they lie in a file until `close`."""
        self._changed.flush()
        if not self._changed.tell():
            return np.empty(0, dtype=np.int64)
        return np.memmap(self._changed, dtype=np.int64, mode="r")

    def close(self) -> None:
        """Free what the changed codes take."""
        self._changed.close()

    def _runs(self, cursor: _Cursor) -> Iterator[range]:
        """Give neighbouring pages that may change, run after run, as far as is known by then."""
        if self._scope is Scope.ALL:
            yield from self._all_runs()
            return
        while len(codes := cursor.codes):
            first = int(self.parent.page_of(codes[:1])[0])
            if self._large(max(0, first)) and codes[0] != self._bound(first):
                yield range(first + 1, first + 1)  # beside a value that fills its page, untouched
                continue
            touched = np.unique(np.maximum(self.parent.page_of(codes), 0))
            gaps = np.flatnonzero(np.diff(touched) != 1)
            last = int(touched[gaps[0]] if len(gaps) else touched[-1])
            yield self._bounded(max(0, first), last + 1)

    def _all_runs(self) -> Iterator[range]:
        start, pages = 0, self.parent.pages
        while start < pages:
            run = self._bounded(start, pages)
            yield run
            start = run.stop
        if not pages:
            yield range(0)

    def _bounded(self, start: int, stop: int) -> range:
        """Give the pages from ``start`` on that make a run; a large value's page is one by itself.

        So is the place where the first page will be.
        """
        index, end, size = self.parent.index, start, 0
        stop = min(stop, self.parent.pages)
        while end < stop and not (end > start and self._large(end)):
            size += sum(int(index.length[part]) for part in index.parts(end))
            end += 1
            if size >= self._run_bytes or self._large(start):
                break
        return range(start, end)

    def _large(self, page: int) -> bool:
        return page < self.parent.pages and len(self.parent.parts(page)) > 1

    def _rewrite(self, pages: range, cursor: _Cursor) -> None:
        """Merge a run of pages with its changes; pages that stay as they are wait to be copied."""
        old, found, waiting = self._load(pages), False, []
        for step in self._merged(old, self._bound(pages.stop), cursor):
            waiting.append(step.rows)
            if len(step.changed) and not found:
                found = True
                self._copy(pages.start)
                self._pass(pages, old)
            if found:
                self._note(step)
                for rows in waiting:
                    self.writer.add(rows)
                waiting.clear()

    def _bound(self, page: int) -> int | None:
        """Give the code where a page begins; None where there is none."""
        codes = self.parent.index.page_code
        return int(codes[page]) if page < len(codes) else None

    def _merged(self, old: pa.RecordBatch, bound: int | None, cursor: _Cursor) -> Iterator[Merged]:
        for block in cursor.until(bound):
            last = block.column(0)[-1].as_py()
            end = int(np.searchsorted(old.column(0).to_numpy(), last, side="right"))
            yield merged(old.slice(0, end), block, self._scope, self._keys)
            old = old.slice(end)
        if self._scope is Scope.ALL:
            gone = np.unique(old.column(0).to_numpy())
            yield Merged(old.slice(0, 0), gone, 0, old.num_rows)
        else:
            yield Merged(old, np.empty(0, dtype=np.int64))

    def _note(self, step: Merged) -> None:
        self._changed.write(step.changed.tobytes())
        if self.filter.nbytes:
            self.filter.add(step.changed)  # among them all that are new
        self.tally.upserted += step.upserted
        self.tally.deleted += step.deleted

    def _pass(self, pages: range, old: pa.RecordBatch) -> None:
        """Note that these pages are written anew."""
        self.left.add(old)
        self.tally.pages_rewritten += len(pages)
        self._next = pages.stop
        self._passed(old.num_rows)

    def _load(self, pages: range) -> pa.RecordBatch:
        if not pages:
            return pa.RecordBatch.from_pylist([], schema=self.parent.page_schema)
        return pa.concat_batches([self._reader.load(p, 1)[0] for p in self._parts(pages)])

    def _parts(self, pages: range) -> range:
        index = self.parent.index
        return range(index.parts(pages[0])[0], index.parts(pages[-1])[-1] + 1)

    def _copy(self, stop: int) -> None:
        """Put the pages before ``stop`` that were not passed yet behind the new ones, as bytes."""
        while self._next < stop and self._fits(self._next):
            page = range(self._next, self._next + 1)
            rows = self._load(page)
            self.writer.add(rows)
            self._pass(page, rows)
        if self._next >= stop:
            return
        self.writer.finish()
        index, parts = self.parent.index, self._parts(range(self._next, stop))
        start, end = index.bounds(parts)
        self._pages.append(self.parent.pages_file.path, start, end - start)
        self.writer.skip(index.lines(parts))
        if self._pages.file.tell() != self.writer.index.end:
            msg = f"{self.parent.pages_file.path} was cut meanwhile; build the master again"
            raise MasterError(msg)
        self.tally.pages_copied += stop - self._next
        self.tally.bytes_copied += end - start
        self._passed(int(index.rows[parts.start : parts.stop].sum()))
        self._next = stop

    def _fits(self, page: int) -> bool:
        """Tell whether rows that wait leave room for an old page, so that both make one."""
        waiting = self.writer.waiting_bytes
        length = int(self.parent.index.length[self.parent.parts(page)[0]])
        room = self.parent.manifest.page_bytes
        return waiting > 0 and waiting + length <= room and not self._large(page)
