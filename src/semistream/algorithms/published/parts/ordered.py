"""A queue before an engine: rows go out in the order in which they came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import concat_rows, take_rows
from semistream.arrow.types import decode, encode, row_bytes
from semistream.engine.operator import Operator
from semistream.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.algorithms.published.derakhshan import Derakhshan
    from semistream.engine.engine import Engine
    from semistream.engine.plan import MemoryUse, Runtime
    from semistream.spec import JoinSpec

    Batches = Iterator[pa.RecordBatch]

__all__ = ["ARRIVAL", "Ordered", "plain_slices"]

ARRIVAL = "semistream: number of arrival"
_BESIDE = 64  # bytes a row for its number, its code, and what is computed of them
_NUMBER = 9  # bytes of a row for its number, and that it is not null
_SLICES = 5  # of the queue's room; more would come at a fixed cost each


@dataclass(frozen=True)
class _Piece:
    """Rows of the queue that came together."""

    rows: pa.RecordBatch
    """Plain, with their numbers."""
    codes: npt.NDArray[np.int64]
    possible: npt.NDArray[np.bool_]
    """Whether a row may have a match, as far as index and filter know."""
    time: float
    claim: int
    """Bytes of the queue's room; 0 for a row that lies in the caller's batch."""

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        if not self.claim:
            return 0
        held = int(self.rows.get_total_buffer_size())
        return held + self.codes.nbytes + self.possible.nbytes

    def cut(self, start: int, end: int) -> _Piece:
        """Return some of the rows; they hold the memory of all."""
        rows = self.rows.slice(start, end - start)
        possible = self.possible[start:end]
        return _Piece(rows, self.codes[start:end], possible, self.time, self.claim)


class Ordered(Operator):
    """Holds rows from the first one that the cache does not answer on; answers them in order.

    Parameters
    ----------
    engine
        Answers rows from its cache; its algorithm fetches what the cache lacks. Its stream has the
        column `ARRIVAL` at the end, its output is plain.
    lookup
        That algorithm.
    spec
        The join as the user knows it.
    runtime
        Its clock and its longest wait.
    """

    def __init__(
        self, engine: Engine, lookup: Derakhshan, spec: JoinSpec, runtime: Runtime
    ) -> None:
        self.engine, self._lookup = engine, lookup
        self.metrics = Metrics()
        self._spec = spec
        self._clock, self._max_wait = runtime.clock, runtime.max_wait
        self._room, self._ordered = (engine.plan.components.queue, engine.plan.components.ordered)
        self._queue: list[_Piece] = []
        self._going: _Piece | None = None  # what has left the queue and is being answered
        self._leaving: list[pa.RecordBatch] = []
        self._arrived = 0
        self._rounds = self._missed = self._absent = 0

    @property
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component."""
        used = self.engine.memory_used
        pieces = {id(piece.rows): piece.nbytes for piece in self._queue}
        if self._going is not None:
            pieces[id(self._going.rows)] = self._going.nbytes
        used["queue"] = sum(pieces.values())
        used["ordered"] = sum(batch.nbytes for batch in self._leaving)
        return used

    @property
    def waiting(self) -> int:
        """How many rows are in the queue."""
        return sum(len(piece) for piece in self._queue)

    def check(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch with a row that could not be held, before any of it is taken."""
        self.engine.check(batch, beside=_NUMBER)

    # -- the queue --------------------------------------------------------------------------

    def run(self, batch: pa.RecordBatch, arrived: float | None = None) -> Batches:
        """Take in a batch; yield what becomes ready."""
        return self._counted(self._take_in(batch, self._clock() if arrived is None else arrived))

    def drain(self) -> Batches:
        """Answer every row that waits."""
        return self._counted(self._send_out())

    def close(self) -> None:
        """Release everything; rows that wait are lost."""
        self.engine.close()
        vars(self).clear()

    def tick(self) -> Batches:
        """Send the queue out if its first row is overdue, or without max_wait."""
        overdue = self._serve_overdue()
        return self._counted(self._send_out() if self._max_wait is None else overdue)

    def _counted(self, work: Batches) -> Batches:
        for batch in work:
            self._tally()
            yield batch
        self._tally()

    def _tally(self) -> None:
        """Say what was done; what was fetched for a row is no hit of the cache."""
        inner = self.engine.metrics
        self.metrics = replace(
            inner,
            rows_in=inner.rows_in + self.waiting,
            cache_hits=inner.cache_hits - self._missed + self._absent,
            filtered=inner.filtered - self._absent,
            absent=inner.absent + self._absent,
            iterations=self._rounds,
        )

    def _take_in(self, batch: pa.RecordBatch, now: float) -> Batches:
        part = self._room // _SLICES
        plain = self._spec.plain_stream
        for rows, claim in plain_slices(batch, plain, part, copies=1, beside=_BESIDE):
            # Room for one slice is kept: it exists twice while it is copied.
            if self._claimed + claim > self._room - part:
                yield from self._send_out()
            self._queue.append(self._piece(rows, claim, now))
            if len(self._queue) == 1:
                yield from self._answer(self._answered_at_once(self._queue[0]))
            if claim > self._room - part:
                yield from self._send_out()  # it was not copied, and must not outlast the offer
            yield from self._serve_overdue()

    @property
    def _claimed(self) -> int:
        return sum(piece.claim for piece in self._queue)

    def _piece(self, rows: pa.RecordBatch, claim: int, now: float) -> _Piece:
        master = self._spec.master
        codes = master.keys.encode([rows.column(name) for name in self._spec.stream_keys])
        possible = codes.valid & (master.page_of(codes.values) >= 0)
        if self.engine.filter is not None:
            possible &= self.engine.filter.may_contain(codes.values)
        numbers = pa.array(np.arange(self._arrived, self._arrived + rows.num_rows))
        self._arrived += rows.num_rows
        borrowed = claim > self._room - self._room // _SLICES
        if not borrowed:
            rows = take_rows(rows, np.arange(rows.num_rows))
        numbered = [*rows.columns, numbers]
        rows = pa.RecordBatch.from_arrays(numbered, schema=self.engine.spec.plain_stream)
        return _Piece(rows, codes.values, possible, now, 0 if borrowed else claim)

    def _answered_at_once(self, piece: _Piece) -> int:
        """Return how many rows at the front need nothing that is not in the cache."""
        unknown = piece.possible & ~self._lookup.holds(piece.codes)
        return int(unknown.argmax()) if unknown.any() else len(piece)

    def _serve_overdue(self) -> Batches:
        limit = self._max_wait
        if limit is not None and self._queue and self._clock() - self._queue[0].time >= limit:
            yield from self._send_out()

    # -- answering in order -----------------------------------------------------------------

    def _send_out(self) -> Batches:
        """Fetch what the queue lacks, in batches that the cache can hold, and answer it."""
        self._rounds += bool(self._queue)
        while self._queue:
            codes = np.concatenate([piece.codes for piece in self._queue])
            possible = np.concatenate([piece.possible for piece in self._queue])
            end = self._end_of_batch(codes, possible)
            codes, possible = codes[:end], possible[:end]
            missed = possible & ~self._lookup.holds(codes)
            left = self._lookup.fetch(codes[possible])
            unknown = possible & np.isin(codes, left)
            ready = int(unknown.argmax()) if unknown.any() else end
            self._missed += int(np.count_nonzero(missed[:ready]))
            absent = possible & ~self._lookup.holds(codes)
            self._absent += int(np.count_nonzero(absent[:ready]))
            yield from self._answer(ready) if ready else self._answer_alone()

    def _end_of_batch(self, codes: npt.NDArray[np.int64], possible: npt.NDArray[np.bool_]) -> int:
        """Return the end of the rows whose values the cache can hold together."""
        rows = np.flatnonzero(possible)
        first = np.sort(np.unique(codes[rows], return_index=True)[1])
        most = self._lookup.most_values
        return len(codes) if len(first) <= most else int(rows[first[most]])

    def _answer(self, count: int) -> Batches:
        """Answer so many rows at the front, all of whose matches are in the cache."""
        while count:
            piece = self._pop(count)
            count -= len(piece)
            for start, end in self._runs(piece):
                yield from self._run(piece.cut(start, end))
        self._going = None
        self._lookup.used()

    def _answer_alone(self) -> Batches:
        """Join the first row part by part: no cache holds its value."""
        row = self._pop(1)
        self._lookup.joins_parts(True)
        for batch in (*self.engine.run(row.rows),):
            yield from self._finished(batch)
        for batch in self.engine.drain():
            yield from self._finished(batch)
        self._lookup.joins_parts(False)
        self._going = None

    def _pop(self, count: int) -> _Piece:
        """Let at most so many rows leave the queue."""
        piece = self._going = self._queue.pop(0)
        if count >= len(piece):
            return piece
        self._queue.insert(0, piece.cut(count, len(piece)))
        return piece.cut(0, count)

    def _runs(self, piece: _Piece) -> Iterator[tuple[int, int]]:
        """Cut rows where their output, put in order, would have no room."""
        once = self._spec.how in {"semi", "anti"}
        matches = np.ones(1) if once else np.maximum(1, self._lookup.matches(piece.codes))
        right = self._spec.master.statistics.widest_row
        ends = np.cumsum(matches * (3 * (row_bytes(piece.rows) + right) + 16))
        start, before = 0, 0.0
        while start < len(piece):
            end = max(start + 1, int(np.searchsorted(ends, before + self._ordered, side="right")))
            yield start, end
            start, before = end, float(ends[end - 1])

    def _run(self, piece: _Piece) -> Batches:
        """Answer rows from the cache and put their output in order; that of one row is."""
        results = self.engine.run(piece.rows)
        if len(piece) == 1:
            for batch in results:
                yield from self._finished(batch)
            return
        self._leaving = list(results)
        if self._leaving:
            self._leaving = [concat_rows(self._leaving)]
            order = np.argsort(self._leaving[0].column(self._number).to_numpy(), kind="stable")
            self._leaving = [take_rows(self._leaving[0], order)]
            yield from self._finished(self._leaving[0])
        self._leaving = []

    @property
    def _number(self) -> int:
        return len(self._spec.stream)

    def _finished(self, batch: pa.RecordBatch) -> Batches:
        """Yield rows in the types of the output; in halves where a dictionary is too large."""
        columns = [*batch.columns[: self._number], *batch.columns[self._number + 1 :]]
        schema = self._spec.output
        try:
            arrays = [encode(a, field.type) for a, field in zip(columns, schema, strict=True)]
        except pa.ArrowInvalid:
            half = batch.num_rows // 2
            if not half:
                raise
            yield from self._finished(batch.slice(0, half))
            yield from self._finished(batch.slice(half))
            return
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain_slices(
    batch: pa.RecordBatch, schema: pa.Schema, room: int, copies: int, beside: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Cut a batch, and bring its rows into their plain types; yield slices and what they claim.

    Parameters
    ----------
    batch, schema
        The rows, and their plain schema.
    room
        Bytes that a slice may claim; one row may claim more.
    copies, beside
        How often a row will exist, and what it claims beside.
    """
    start = 0
    while start < batch.num_rows:
        ahead = batch.slice(start, max(1, room // beside))
        claims = np.cumsum(copies * row_bytes(ahead) + beside)
        count = max(1, int(np.searchsorted(claims, room, side="right")))
        # Not decoded before it is cut: a dictionary may hide any size.
        columns = [decode(column) for column in ahead.slice(0, count).columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema), int(claims[count - 1])
        start += count
