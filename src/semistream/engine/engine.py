"""The loop that all algorithms share.

A semi-stream join holds a bounded window of unmatched stream rows, and at each step brings a page
of the master table to it. The engine owns the window, the disk buffer and the output, and counts
their bytes. An `Algorithm` makes the decisions: what is answered before the window, which page
comes next, which rows leave.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from semistream.arrow.memory import give_back_memory
from semistream.arrow.page_directory import PageDirectory
from semistream.engine.intake import Intake
from semistream.engine.lookup import Lookup
from semistream.engine.operator import Operator
from semistream.engine.output import Assembler, Output, Pairs, all_done, gathered_schema
from semistream.engine.pages import BatchPage, MessageRun, Page
from semistream.engine.plan import MemoryUse
from semistream.engine.window import Window
from semistream.errors import RowTooLargeError
from semistream.kernels.chains import WAITING
from semistream.kernels.search import match_run
from semistream.metrics import Metrics
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.engine.algorithm import Algorithm
    from semistream.engine.cache import CachedRows
    from semistream.engine.pages import PageRun
    from semistream.engine.plan import Plan, Runtime, Task
    from semistream.engine.window import Chunk
    from semistream.master.files.reader import PageReader
    from semistream.spec import JoinSpec

    Batches = Iterator[pa.RecordBatch]
    Ints = npt.NDArray[np.int64]
    Sifted = Generator[pa.RecordBatch, None, Chunk]

__all__ = ["Engine"]

_NO_COUNTS = np.zeros(0, dtype=np.int64)


class Engine(Operator):
    """Runs one algorithm on one stream."""

    def __init__(
        self,
        task: Task,
        plan: Plan,
        algorithm: type[Algorithm],
        runtime: Runtime,
    ) -> None:
        give_back_memory()
        self.task, self.plan = task, plan
        self.spec: JoinSpec = task.spec
        self.master = task.spec.master
        self.metrics = Metrics()
        settings = plan.settings
        self.reader = self._open_reader(settings.buffer_pages or 1, settings.run_pages)
        self.window = Window(self.spec.plain_stream, plan.components.window, task.cost)
        self.filter = self.spec.files.load_filter(task.filter_words) if task.filter_words else None
        self._intake = Intake(self.spec, self.window, self.metrics)
        self._assembler = Assembler(self.spec)
        rows = settings.output_rows or task.output_rows
        self._output = Output(self._assembler, plan.components.output, rows)
        wanted = gathered_schema(self.spec).names
        self.lookup: Lookup | None = None
        """The means to answer rows at once, if the plan has memory for them."""
        if plan.components.lookup:
            root = task.host.root if task.host else None
            self.lookup = Lookup(self.spec.files, self.reader, wanted, self._output, root)
        self._directory: PageDirectory | None = None  # of a page run; None where columns are nested
        if plan.components.blocks:
            self._directory = PageDirectory(
                self.master.page_schema, wanted, task.run_pages(settings)
            )
        self._clock, self._max_wait = runtime.clock, runtime.max_wait
        self._pinned_matched = True
        self.draining = False
        """Whether no row comes before all that wait are answered."""
        self._observer = runtime.observer
        self.algorithm = algorithm(self)
        self._observer.on_start(self)

    def _open_reader(self, parts: int, run: int | None) -> PageReader:
        return self.spec.files.reader(parts, run)

    @property
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component."""
        used = MemoryUse(
            window=self.window.nbytes,
            pages=self.reader.nbytes,
            output=self._output.nbytes,
            **self.algorithm.memory_used(),
        )
        if self.filter is not None:
            used["filter"] = self.filter.nbytes
        if self.lookup is not None:
            used["lookup"] = self.lookup.nbytes
        if self._directory is not None:
            used["blocks"] = self._directory.nbytes
        return used

    @property
    def waiting(self) -> int:
        """How many rows wait for their page."""
        return self.window.waiting

    def close(self) -> None:
        """Release everything; rows that wait are lost."""
        self.algorithm.close()
        vars(self).clear()  # engine and algorithm know each other: neither would go by itself

    # -- taking rows in ---------------------------------------------------------------------

    def check(self, batch: pa.RecordBatch, beside: int = 0) -> None:
        """Refuse a batch with a row that could not be held, before any of it is taken.

        ``beside`` are bytes that a row will have more than it has in the batch.
        """
        if self.window.cost.width is not None or not batch.num_rows:
            return
        sizes = self._intake.sizes(batch)
        largest = int(sizes.max()) + beside
        right = self.master.statistics.widest_row
        held = self.window.cost.fit(1, largest, self.least_capacity)
        output = self._output.row_bytes(largest, right) + self._output.scratch
        if not held or output > self._output.capacity:
            row = f"row {int(sizes.argmax())} of the batch"
            raise self._too_large(row, largest, self.least_capacity)

    def _too_large(self, row: str, size: int, window: int) -> RowTooLargeError:
        msg = (
            f"{row} takes {format_bytes(size)}: with memory={format_bytes(self.plan.memory)} the "
            f"window has room for {format_bytes(window)}, output for "
            f"{format_bytes(self._output.capacity)}. Give more memory, or drop the column."
        )
        return RowTooLargeError(msg)

    @property
    def least_capacity(self) -> int:
        """Bytes that the window has at the least, whatever the algorithm moves."""
        least = self.plan.settings.least_window
        return self.plan.components.window if least is None else least

    def run(self, batch: pa.RecordBatch, arrived: float | None = None) -> Batches:
        """Take in a batch that ``arrived`` then, or now; yield what becomes ready."""
        now = self._clock() if arrived is None else arrived
        for chunk in self._chunks(batch):
            if self._at_once:
                yield from self._empty()
                chunk = yield from self._look_up(chunk)  # noqa: PLW2901
            yield from self._accept(chunk, now)
            yield from self.serve_overdue()
        yield from self._flush()

    @property
    def _at_once(self) -> bool:
        """Whether rows are answered from pages in memory, without a window."""
        return self.lookup is not None and self.algorithm.at_once

    def drain(self) -> Batches:
        """Answer every row that waits."""
        self.draining = True
        yield from self._empty()
        yield from self._flush()
        self.draining = False

    def _empty(self) -> Batches:
        while self.window.waiting:
            yield from self._iterate()

    def tick(self) -> Batches:
        """Do what is due while nothing arrives: overdue rows, or one round without max_wait."""
        if self._max_wait is not None:
            yield from self.serve_overdue()
        elif self.window.waiting:
            yield from self._iterate()
        yield from self._flush()

    def serve_overdue(self) -> Batches:
        """Bring the page of the oldest row for as long as that row has waited too long."""
        served = False
        limit = self._max_wait
        while (
            limit is not None
            and self.window.waiting
            and self._clock() - self.window.oldest_time >= limit
        ):
            yield from self._bring(self.algorithm.around_oldest())
            served = True
        if served:
            yield from self._flush()

    def _chunks(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Cut a batch into chunks of at most a quarter of the window, or of what can be output."""
        start = 0
        while start < batch.num_rows:
            rows = batch.slice(start)
            if self._at_once:
                assert self.lookup is not None  # noqa: S101 - for the type checker
                chunk = self._intake.for_lookup(rows, self.lookup.rows)
            else:
                chunk = self._intake.for_window(rows)
            start += len(chunk)
            self._observer.on_chunk(self, chunk)
            yield chunk

    def _look_up(self, chunk: Chunk) -> Sifted:
        """Answer rows from pages that lie in memory; return those whose page has several parts."""
        assert self.lookup is not None  # noqa: S101 - for the type checker; see `_at_once`
        later = []
        confirmed = None if self._assembler.exact else np.zeros(len(chunk), dtype=np.bool_)
        cursor = (0, -1)
        sizes = (chunk.widest, self.master.statistics.widest_row)
        while cursor[0] < len(chunk):
            room = self._output.room(*sizes)
            if room < 1:
                yield from self._flush()
                continue
            cursor, found, missing, deferred = self.lookup.look_up(
                chunk, cursor, self._assembler.once, room
            )
            rows, absent = self._output.rows[:found], self._output.absent[:missing]
            if len(deferred):
                later.append(deferred)
            self.metrics.absent += missing
            right, distinct = self.lookup.gather(found), self.lookup.is_unique
            pairs = Pairs([rows], right, [absent], lasting=True, distinct=distinct)
            del right
            yield from self._emit(chunk.rows, pairs, confirmed, lambda r: r == cursor[0])  # noqa: B023
        left = sum(map(len, later))
        self.metrics.looked_up += len(chunk) - left
        self.metrics.answered += len(chunk) - left
        self.algorithm.note_lookups(len(chunk), self.lookup.new_faults())
        if not left:
            return chunk.none
        chosen = np.zeros(len(chunk), dtype=np.bool_)
        chosen[np.concatenate(later)] = True
        return self._intake.with_pages(chunk.only(chosen))

    def _accept(self, chunk: Chunk, now: float) -> Batches:
        """Answer what can be answered before the window; the rest goes into it."""
        if not len(chunk):
            return
        self._output.buffers.rest()
        chunk = yield from self._sift(chunk, self._possible(chunk))
        cache = self.algorithm.cache
        if cache is not None and len(cache) and len(chunk):
            chunk = yield from self._probe(chunk, cache)
        self.algorithm.end_probe()
        if self.algorithm.complete:
            chunk = yield from self._sift(chunk, np.zeros(len(chunk), dtype=np.bool_))
        if not len(chunk):
            return
        while not (self.window.can_admit(chunk) and self.algorithm.ready(len(chunk))):
            yield from self._iterate()
            yield from self.serve_overdue()
            if self.window.is_empty and not self.window.can_admit(chunk):
                raise self._too_large("a row", chunk.widest, self.window.capacity)
        yield from self._flush()  # what was collected refers to rows that are about to move
        self.algorithm.before_admission(chunk)
        self.window.admit(chunk, now, self.metrics.rows_in)
        self._pinned_matched = False
        self.algorithm.after_admission()

    def _possible(self, chunk: Chunk) -> npt.NDArray[np.bool_]:
        """Return which rows may have a match, as far as index and filter know."""
        possible = chunk.pages >= 0
        if self.filter is not None:
            possible &= self.filter.may_contain(chunk.codes)
        return possible

    def _sift(self, chunk: Chunk, keep: npt.NDArray[np.bool_]) -> Sifted:
        """Answer the rows that are known to be absent; return the others."""
        if keep.all():
            return chunk
        absent = np.flatnonzero(~keep)
        self.metrics.filtered += len(absent)
        self.metrics.answered += len(absent)
        yield from self._emit_absent(chunk.rows, absent, chunk.widest, lasting=True)
        return chunk.only(keep)

    def _probe(self, chunk: Chunk, cache: CachedRows) -> Sifted:
        """Answer rows from the cache; return the others."""
        hit = np.zeros(len(chunk), dtype=np.bool_)
        confirmed = None if self._assembler.exact else np.zeros(len(chunk), dtype=np.bool_)
        cursor = (0, -1)
        sizes = (chunk.widest, cache.widest)
        while cursor[0] < len(chunk):
            room = self._output.room(*sizes)
            if room < 1:
                yield from self._flush()
                continue
            o, once = self._output, self._assembler.once
            places = o.rows[:room], o.blocks[:room], o.positions[:room]
            found, *after = cache.probe(chunk.codes, cursor, once, places, hit)
            cursor = (after[0], after[1])
            rows, right = o.rows[:found], self._assembler.gathered(found)
            places = rows, o.blocks[:found], o.positions[:found]
            cache.gather(self._assembler.names, right, places)
            pairs = Pairs([rows.copy()], right, lasting=True)
            yield from self._emit(chunk.rows, pairs, confirmed, lambda r: r == cursor[0])  # noqa: B023
        hits = int(np.count_nonzero(hit))
        self.metrics.cache_hits += hits
        self.metrics.answered += hits
        return chunk if not hits else chunk.only(~hit)

    # -- bringing pages ---------------------------------------------------------------------

    def _iterate(self) -> Batches:
        """Do one round of the algorithm's main loop."""
        self.metrics.iterations += 1
        if not self._pinned_matched:
            yield from self._match_pinned()
        if self.window.waiting:
            yield from self._bring(*self.algorithm.next_runs())
        yield from self._expire(self.algorithm.end_round())
        self._observer.on_round(self)

    def _match_pinned(self) -> Batches:
        """Match the pages that stay in memory; once for each admission is enough."""
        self._pinned_matched = True
        before = self.window.waiting
        for page in self.algorithm.pinned():
            yield from self._match_page(page, True)
        self.metrics.pinned_hits += before - self.window.waiting

    def _bring(self, *runs: range) -> Batches:
        """Read page runs, those that come next while one is matched, and match each."""
        self._observer.on_pages(self, runs)
        pages = np.fromiter(chain.from_iterable(runs), dtype=np.int64)
        self.metrics.pages_read += len(pages)
        parts, several = self.spec.files.index.first_parts(pages)
        for page in pages[several].tolist():
            yield from self._bring_fragments(page)
        pages, parts = pages[~several], parts[~several]
        for step, addresses in self.sweep(parts) if len(parts) else ():
            yield from self._match_run(pages[step], parts[step], addresses)

    def _bring_fragments(self, page: int) -> Batches:
        """Read a page fragment by fragment: its one join value may exceed the disk buffer."""
        parts = self.master.parts(page)
        if self._assembler.once:
            parts = parts[:1]  # all fragments have the same code: the first one tells
        for part in parts:
            fragment = Page(page, part, self.read(part), self.reader)
            yield from self._match_page(fragment, part == parts[-1])

    def read(self, part: int) -> int:
        """Read a part; return its address, valid until the next read."""
        (address,) = next(self.sweep(np.array([part])))[1].tolist()
        return int(address)

    def sweep(self, parts: Ints) -> Iterator[tuple[slice, Ints]]:
        """Read ascending parts; yield which of them lie where, until the next step."""
        self._observer.on_read(self, parts)
        for step, addresses in self.reader.sweep(parts):
            self.metrics.reads, self.metrics.bytes_read = self.reader.reads, self.reader.bytes_read
            yield step, addresses

    def read_page(self, number: int) -> Page:
        """Read a page that has one part; it is valid until the next read."""
        part = self.master.parts(number)[0]
        self.metrics.pages_read += 1
        return Page(number, part, self.read(part), self.reader)

    def _match_run(self, numbers: Ints, parts: Ints, addresses: Ints) -> Batches:
        """Match pages, as many at once as the directory has lines."""
        directory, one = self._directory, self.algorithm.counts_matches
        step = 1 if directory is None or one else len(directory.start)
        for at in range(0, len(parts), step):
            if directory is None or step == 1:
                page = Page(int(numbers[at]), int(parts[at]), int(addresses[at]), self.reader)
                yield from self._match_page(page, True)
            else:
                some = slice(at, at + step)
                where = numbers[some], parts[some], addresses[some]
                yield from self._match(MessageRun(*where, self.spec.files.index, directory))

    def _match_page(self, page: Page, last: bool) -> Batches:
        """Match one page or fragment; have the algorithm note what a whole page answered."""
        index, part = self.spec.files.index, page.part
        if self._directory is None:
            widest = int(index.widest[part])
            run: PageRun = BatchPage(page.number, page.batch, widest, last, self._assembler)
        else:
            number, parts, at = (np.array([n]) for n in (page.number, part, page.address))
            run = MessageRun(number, parts, at, index, self._directory)
            run.last = last
        if not self.algorithm.counts_matches:
            yield from self._match(run)
            return
        counts = np.zeros(int(index.rows[part]), dtype=np.int64)
        yield from self._match(run, counts)
        if last and part == self.master.parts(page.number)[0]:
            self.algorithm.note_matches(page, counts)

    def _match(self, run: PageRun, counts: npt.NDArray[np.int64] = _NO_COUNTS) -> Batches:
        """Match the rows that wait for these pages, in compiled code."""
        w, output, algorithm = self.window, self._output, self.algorithm
        window = (w.heads, w.chain, w.pages, w.codes, w.state)
        single = algorithm.single
        # A database may get further rows of a key at any time, whatever it had when it was opened.
        unique = not self.master.is_live and self.master.statistics.most_duplicates <= 1
        rule = (unique, self._assembler.once, run.last, single, algorithm.done)
        sizes = (w.widest, run.widest)
        cursor = (0, -1, w.oldest if single else -2, -1)
        while cursor[0] < len(run):
            room = output.room(*sizes)
            if room < 1:
                yield from self._flush()
                continue
            out = (output.rows[:room], output.blocks, output.positions, output.absent)
            found, missing, answered, cursor = match_run(
                run.pages, window, cursor, rule, out, counts
            )
            output.add(run, found, missing, sizes)
            w.leave(answered if algorithm.frees else 0, answered)
            self.metrics.absent += missing
            self.metrics.answered += answered

    def _expire(self, end: int) -> Batches:
        """Let the window's first rows leave; those still waiting have no match."""
        if not end:
            return
        yield from self._flush()
        absent = self.window.expire(end)
        self.metrics.absent += len(absent)
        self.metrics.answered += len(absent)
        yield from self._emit_absent(self.window.rows, absent, self.window.widest, lasting=False)

    # -- giving rows out --------------------------------------------------------------------

    def _flush(self) -> Batches:
        """Yield what was collected of the window's rows."""
        if self._output.pairs:
            confirmed = None if self._assembler.exact else self.window.confirmed
            state = self.window.state
            pairs, rows = self._output.take(), self.window.rows
            if pairs.right is not None:
                self.algorithm.note_output(pairs)
            yield from self._emit(rows, pairs, confirmed, lambda r: state[r] == WAITING)

    def _emit_absent(
        self, rows: pa.RecordBatch, absent: npt.NDArray[np.int64], widest: int, lasting: bool
    ) -> Batches:
        """Yield stream rows without a match, as many at a time as output has room for."""
        start = 0
        while start < len(absent):
            room = self._output.room(widest, self.master.statistics.widest_row)
            if room < 1:
                yield from self._flush()
                continue
            piece = absent[start : start + room]
            start += len(piece)
            yield from self._emit(rows, Pairs(absent=[piece], lasting=lasting))

    def _emit(
        self,
        rows: pa.RecordBatch,
        pairs: Pairs,
        confirmed: npt.NDArray[np.bool_] | None = None,
        unfinished: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]] = all_done,
    ) -> Batches:
        self._output.leaving = pairs
        batches = self._assembler.assemble(rows, pairs, confirmed, unfinished)
        if not self._assembler.encodes:  # at most one batch: when it is made, it is the caller's
            made = list(batches)
            self._output.give_out(pairs)
            batches = (made.pop() for _ in range(len(made)))
        for batch in batches:
            self.metrics.rows_out += batch.num_rows
            yield batch
            del batch
        self._output.give_out(pairs)
