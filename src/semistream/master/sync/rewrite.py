"""A new snapshot from an old one and sorted changes: pages that no change touches are copied."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.page_shape import PageShape
from semistream.arrow.types import row_bytes
from semistream.errors import CorruptPageError, MasterError
from semistream.master.build.pages import Counts, PageWriter, ValueCount
from semistream.master.files.drafts import scratch
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.master.files.format import aligned
from semistream.master.lake.table import Scope
from semistream.master.sync.merge import Merged, cancel, merge, whole_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from semistream.master.files.drafts import Draft
    from semistream.master.files.master import FileMaster

__all__ = ["Rewrite", "Tally", "count_rows", "parent_filter"]

_FULLEST = 0.45
"""Fraction of set bits above which a filter is made anew: 4 % of absent keys pass, not 2 %."""
_RUN_BYTES = 1 << 20
"""Neighbouring pages that are merged at once: enough that the fixed cost of a step is small."""


@dataclass
class Tally:
    """Work that a sync has done."""

    upserted: int = 0
    deleted: int = 0
    pages_rewritten: int = 0
    pages_copied: int = 0
    bytes_copied: int = 0


class _Cursor:
    """Blocks of changes, consumed by ranges of codes."""

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
        """Consume all changes of codes below ``bound``; None is no bound."""
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
        report: Callable[[int], None],
    ) -> None:
        self.tally = Tally()
        self.left = Counts()
        """Counts of the old rows that were read, and so are written anew."""
        self.writer = PageWriter(pages.file, parent.page_schema, parent.manifest.page_bytes)
        self.parent, self._pages, self.filter, self._scope = parent, pages, filter, scope
        self._keys = () if parent.keys.exact else parent.keys.names
        self._reader = parent.reader()
        self._report, self._next = report, 0
        # Where all pages are compared, those that stay as they are must not fall to a neighbour.
        self._run_bytes = 1 if scope is Scope.ALL else _RUN_BYTES
        self._changed = scratch(parent.path)

    def run(self, changes: Iterable[pa.RecordBatch]) -> None:
        """Apply changes that come sorted by code."""
        blocks = whole_values(changes)
        if self._scope is Scope.ROWS:
            blocks = (block for block in map(cancel, blocks) if block.num_rows)
        cursor = _Cursor(blocks)
        for pages in self._runs(cursor):
            self._rewrite(pages, cursor)
        self._copy(self.parent.pages)
        self.writer.finish()

    def changed(self) -> npt.NDArray[np.int64]:
        """Return the sorted codes whose rows changed; they lie in a file until `close`."""
        self._changed.flush()
        if not self._changed.tell():
            return np.empty(0, dtype=np.int64)
        return np.memmap(self._changed, dtype=np.int64, mode="r")

    def close(self) -> None:
        """Free what the changed codes take."""
        self._changed.close()

    def _runs(self, cursor: _Cursor) -> Iterator[range]:
        """Yield runs of neighbouring pages that may change, as far as the cursor knows them."""
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
        """Return the pages from ``start`` on that make a run; a large value's page is one alone."""
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
        old, differs, waiting = self._load(pages), False, []
        for step in self._merge(old, self._bound(pages.stop), cursor):
            waiting.append(step.rows)
            if len(step.changed) and not differs:
                differs = True
                self._copy(pages.start)
                self._pass(pages, old)
            if differs:
                self._changed.write(step.changed.tobytes())
                if self.filter.nbytes:
                    self.filter.add(step.changed)  # among them all that are new
                self.tally.upserted += step.upserted
                self.tally.deleted += step.deleted
                for rows in waiting:
                    self.writer.add(rows)
                waiting.clear()

    def _bound(self, page: int) -> int | None:
        """Return the code where a page begins; None where there is none."""
        codes = self.parent.index.page_code
        return int(codes[page]) if page < len(codes) else None

    def _merge(self, old: pa.RecordBatch, bound: int | None, cursor: _Cursor) -> Iterator[Merged]:
        for block in cursor.until(bound):
            last = block.column(0)[-1].as_py()
            end = int(np.searchsorted(old.column(0).to_numpy(), last, side="right"))
            yield merge(old.slice(0, end), block, self._scope, self._keys)
            old = old.slice(end)
        if self._scope is Scope.ALL:
            gone = np.unique(old.column(0).to_numpy())
            yield Merged(old.slice(0, 0), gone, 0, old.num_rows)
        else:
            yield Merged(old, np.empty(0, dtype=np.int64))

    def _pass(self, pages: range, old: pa.RecordBatch) -> None:
        """Count pages that are written anew, by their old rows."""
        values = ValueCount()
        values.add(old.column(0).to_numpy())
        self.left += Counts(int(row_bytes(old).sum()), values.values, values.most)
        self.tally.pages_rewritten += len(pages)
        self._next = pages.stop
        self._report(old.num_rows)

    def _load(self, pages: range) -> pa.RecordBatch:
        if not pages:
            return pa.RecordBatch.from_pylist([], schema=self.parent.page_schema)
        return pa.concat_batches([self._reader.load(p, 1)[0] for p in self._parts(pages)])

    def _parts(self, pages: range) -> range:
        index = self.parent.index
        return range(index.parts(pages[0])[0], index.parts(pages[-1])[-1] + 1)

    def _copy(self, stop: int) -> None:
        """Append the pages before ``stop`` that were not passed yet, as bytes."""
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
        self._report(int(index.rows[parts.start : parts.stop].sum()))
        self._next = stop

    def _fits(self, page: int) -> bool:
        """Return whether rows that wait leave room for an old page, so that both make one."""
        waiting = self.writer.waiting_bytes
        length = int(self.parent.index.length[self.parent.parts(page)[0]])
        room = self.parent.manifest.page_bytes
        return waiting > 0 and waiting + length <= room and not self._large(page)


def parent_filter(parent: FileMaster, memory: int) -> KeyFilter:
    """Load the parent's filter, as large as a quarter of the memory can hold."""
    words = KeyFilter.affordable(parent.filter_words, parent.statistics.values, memory // 4)
    return parent.load_filter(words) if words else KeyFilter.zeros(0)


def count_rows(
    rewrite: Rewrite, pages: IO[bytes], null_keys: int, memory: int
) -> tuple[Counts, KeyFilter]:
    """Return the counts of the new pages, and their filter; read the codes only if need be."""
    parent, left, new = rewrite.parent.statistics, rewrite.left, rewrite.writer.counts(null_keys)
    values, most = parent.values - left.values + new.values, parent.most_duplicates
    counts = Counts(
        parent.bytes - left.bytes + new.bytes, values, max(new.most_duplicates, most), null_keys
    )
    # The most frequent value was met, or surely lies in a page that was copied.
    copied = rewrite.tally.pages_copied > 0
    untouched = left.most_duplicates < most or (copied and most == 1)
    words = KeyFilter.affordable(filter_words(values), values, memory // 4)
    words = words if rewrite.parent.filter_words else 0
    if (new.most_duplicates >= most or untouched) and not _is_outgrown(rewrite.filter, words):
        return counts, rewrite.filter
    recount, keys = ValueCount(), KeyFilter.zeros(words)
    for codes in _codes(pages, rewrite):
        fresh = recount.add(codes)
        if keys.nbytes:
            keys.add(fresh)
    return Counts(counts.bytes, recount.values, recount.most, null_keys), keys


def _is_outgrown(keys: KeyFilter, words: int) -> bool:
    """Return whether a filter has too few bits, or too many of them set by keys that are gone."""
    held = len(keys.words)
    if not held or not words:
        return held != words
    return words > held or keys.folded(min(held, words)).fill > _FULLEST


def _codes(pages: IO[bytes], rewrite: Rewrite) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the codes of all new pages, part by part; what lies between them is not read."""
    pages.flush()
    lines, schema = rewrite.writer.index.lines, rewrite.parent.page_schema
    if not len(lines):
        return
    data = pa.py_buffer(mmap.mmap(pages.fileno(), rewrite.writer.index.end, prot=mmap.PROT_READ))
    shape = PageShape(schema)
    for line in lines:
        content = data.slice(int(line["offset"]), aligned(int(line["length"])))
        if not shape.fits(content, int(line["length"]), int(line["rows"])):  # it was copied unseen
            msg = f"{rewrite.parent.path}: a page does not hold what its header says"
            raise CorruptPageError(f"{msg}; build the master again")
        yield np.asarray(pa.ipc.read_record_batch(content, schema).column(0).to_numpy())
