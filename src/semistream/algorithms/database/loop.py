"""The loop of a join that queries a database for the keys that wait, many at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from semistream.arrow.keys import is_among
from semistream.arrow.memory import concat_rows, take
from semistream.arrow.types import row_bytes
from semistream.engine.engine import Engine
from semistream.engine.fresh import ProcessRows
from semistream.engine.window import Chunk
from semistream.errors import RowTooLargeError
from semistream.hotset.rows import HostRows
from semistream.kernels.loops import WAITING
from semistream.master.database.fetch import Wanted
from semistream.master.files.reader import PageReader
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from semistream.engine.algorithm import Algorithm
    from semistream.engine.cache import Held
    from semistream.engine.engine import Batches, Sifted
    from semistream.engine.fresh import FreshRows, Moment
    from semistream.engine.plan import MemoryUse, Plan, Runtime, Task
    from semistream.master.database.fetch import Fetched
    from semistream.master.database.master import DatabaseMaster

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

__all__ = ["KeyedEngine"]

_AT_ONCE = 1 << 14  # rows whose keys are hashed in one call


class KeyedEngine(Engine):
    """An engine whose window is answered by queries for the keys that wait in it.

    A request for some keys takes the place of a page: rows that wait for one of its keys get the
    request's number as their page, and meet what the database sends.
    """

    def __init__(
        self,
        task: Task,
        plan: Plan,
        algorithm: type[Algorithm],
        runtime: Runtime,
    ) -> None:
        # `choose` gives this engine to masters in databases alone.
        self._table = cast("DatabaseMaster", task.spec.master)
        self._table.listen()
        self.fresh = _fresh_rows(task, self._table, plan.components["cache"], runtime.clock)
        self._request_bytes = self._fetched_bytes = self._widest_row = 0
        super().__init__(task, plan, algorithm, runtime)

    def _open_reader(self, parts: int, run: int | None) -> PageReader:  # noqa: ARG002
        return _NoPages()

    def _widest(self, part: int) -> int:  # noqa: ARG002 - an answer has one
        return self._widest_row

    @property
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component."""
        used = super().memory_used
        used["fetch"] = self._request_bytes + self._fetched_bytes
        return used

    # -- before the window ------------------------------------------------------------------

    def _accept(self, chunk: Chunk, now: float) -> Batches:
        self.fresh.refresh()
        yield from super()._accept(chunk, now)

    def _possible(self, chunk: Chunk) -> Flags:
        """Return which rows may have a match: those whose key is not known to be absent."""
        checks = partial(self._checks, chunk.rows, chunk.codes)
        return super()._possible(chunk) & ~self.fresh.lacks(chunk.codes, checks)

    def _checks(self, rows: pa.RecordBatch, codes: Codes) -> Codes:
        """Return a second hash of each key; a code that is exact needs none."""
        if self.master.keys.exact:
            return codes
        return self.master.keys.checks([rows.column(name) for name in self.spec.stream_keys])

    def _probe(self, chunk: Chunk, cache: Held) -> Sifted:
        """Answer rows from the cache; one whose code is there for another key is not answered."""
        if self.master.keys.exact:
            return (yield from super()._probe(chunk, cache))
        other = self._other_keys(chunk, cache)
        if not other.any():
            return (yield from super()._probe(chunk, cache))
        if other.all():
            return chunk
        rest = yield from super()._probe(chunk.only(~other), cache)
        return _together(rest, chunk.only(other))

    def _other_keys(self, chunk: Chunk, cache: Held) -> Flags:
        """Return which rows have a code in the cache that stands for another key there."""
        rows, positions = (np.empty(len(chunk), dtype=np.int64) for _ in range(2))
        hit, other = (np.zeros(len(chunk), dtype=np.bool_) for _ in range(2))
        found = cache.probe(chunk.codes, (0, -1), True, rows, positions, hit)[0]
        ours = [take(chunk.rows.column(n), pa.array(rows[:found])) for n in self.spec.stream_keys]
        at, keys = pa.array(positions[:found]), self.master.keys
        theirs = [take(cache.batch.column(name), at) for name in keys.names]
        other[rows[:found]] = keys.checks(ours) != keys.checks(theirs)
        return other

    # -- asking for keys --------------------------------------------------------------------

    def _bring(self, *runs: range) -> Batches:  # noqa: ARG002 - all that waits is asked for
        """Ask for all keys that wait, and let the window meet their rows."""
        number, piece = 0, int(self.plan.settings["piece_bytes"])
        for wanted in self._requests():
            moment = self.fresh.refresh()
            self._request_bytes = wanted.nbytes
            for answer in self._table.fetch(wanted, piece, self._asked):
                if answer.begins:
                    number += 1
                    self._wait_for(number, answer)
                yield from self._meet_answer(number, answer)
                if answer.begins and answer.ends:
                    self._learn(wanted, answer, moment)
            self._request_bytes = self._fetched_bytes = 0

    def _asked(self) -> None:
        self.metrics.queries += 1

    def _requests(self) -> Iterator[Wanted]:
        """Yield the keys that wait, each once, in the order of their codes, in requests."""
        chosen, codes, checks = self._distinct()
        most, keys = int(self.plan.settings["request_keys"]), self.master.keys
        sizes = None if chosen is None else np.cumsum(self._key_bytes()[chosen])
        start = 0
        while start < len(codes):
            stop = min(start + most, len(codes))
            if sizes is not None:
                stop = min(stop, self._fitting(sizes, start))
            last = codes[stop - 1]  # keys of one code stay together
            some = slice(start, int(np.searchsorted(codes, last, side="right")))
            start = some.stop
            if chosen is None:
                values = [keys.decode(pa.array(codes[some]))]
            else:
                values = keys.canonical(self._keys_of(chosen[some]))
            yield Wanted(codes[some], checks[some], values)

    def _key_bytes(self) -> Codes:
        return row_bytes(self.window.rows.select(self.spec.stream_keys))

    def _fitting(self, sizes: Codes, start: int) -> int:
        """Return where a request ends that begins at a key: at the next one at the least."""
        limit = int(self.plan.settings["request_bytes"]) + (int(sizes[start - 1]) if start else 0)
        return max(start + 1, int(np.searchsorted(sizes, limit, side="right")))

    def _distinct(self) -> tuple[Codes | None, Codes, Codes]:
        """Return a row of each key that waits (none where the code is the key), code and check."""
        window, exact = self.window, self.master.keys.exact
        waiting = window.state == WAITING
        if exact:
            codes = np.sort(window.codes[waiting])
            codes = codes[_changes(codes)]
            return None, codes, codes
        rows = np.flatnonzero(waiting)
        rows = rows[np.argsort(window.codes[rows], kind="stable")]
        checks = [self.master.keys.checks(self._keys_of(some)) for some in _slices(rows)]
        codes, check = window.codes[rows], np.concatenate(checks)
        # Keys of one code are neighbours; so are equal keys among them, sorted by their check.
        order = np.lexsort((check, codes)) if len(rows) > len(np.unique(codes)) else slice(None)
        rows, codes, check = rows[order], codes[order], check[order]
        new = _changes(codes) | _changes(check)
        return rows[new], codes[new], check[new]

    def _keys_of(self, rows: Codes) -> list[pa.Array]:
        """Return the keys of some of the window's rows."""
        at = pa.array(rows)
        return [take(self.window.rows.column(name), at) for name in self.spec.stream_keys]

    def _wait_for(self, number: int, answer: Fetched) -> None:
        """Chain the rows that this answers to its number, as if it were a page."""
        window = self.window
        mine = window.codes >= answer.low
        mine &= window.codes <= answer.high
        window.pages[mine] = number

    def _meet_answer(self, number: int, answer: Fetched) -> Batches:
        rows = answer.rows
        self._fetched_bytes = int(rows.nbytes)
        self.metrics.fetched += rows.num_rows
        self._widest_row = self._checked_width(rows)
        yield from self._meet(number, 0, rows, answer.ends)

    def _checked_width(self, rows: pa.RecordBatch) -> int:
        """Return the bytes of the largest row; refuse one that output has no room for."""
        widest = int(row_bytes(rows).max(initial=0))
        size = self._output.row_bytes(self.window.widest, widest) + self._output.scratch
        if size > self._output.capacity:
            msg = (
                f"{self._table.store}: a row takes {format_bytes(widest)}, and with "
                f"memory={format_bytes(self.plan.memory)} output has room for "
                f"{format_bytes(self._output.capacity)}. Give more memory, or leave the widest "
                "columns out with select=[…]"
            )
            raise RowTooLargeError(msg)
        return widest

    def _learn(self, wanted: Wanted, answer: Fetched, moment: Moment) -> None:
        """Keep the rows that came, and remember the keys that have none."""
        some = slice(
            int(np.searchsorted(wanted.codes, answer.low)),
            int(np.searchsorted(wanted.codes, answer.high, side="right")),
        )
        codes, checks = wanted.codes[some], wanted.checks[some]
        absent = ~is_among(codes, answer.rows.column(0).to_numpy())
        self.fresh.keep(answer.rows, moment)
        self.fresh.keep_absent(codes[absent], checks[absent], moment)
        self.metrics.evicted = self.fresh.evicted


def _fresh_rows(
    task: Task, master: DatabaseMaster, capacity: int, clock: Callable[[], float]
) -> FreshRows:
    """Return the rows that the join's host keeps, or else those that it keeps by itself."""
    if task.host is not None:
        return HostRows(task.host, master, capacity, clock)
    return ProcessRows(master, capacity, clock)


class _NoPages(PageReader):
    """What an engine has in the place of a disk buffer where there are no pages to read."""

    nbytes = 0

    def __init__(self) -> None:
        self.reads = self.bytes_read = 0

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        raise NotImplementedError


def _changes(values: Codes) -> Flags:
    """Return which values differ from the one before."""
    new = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _slices(rows: Codes) -> list[Codes]:
    return [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]


def _together(a: Chunk, b: Chunk) -> Chunk:
    return Chunk(
        concat_rows([a.rows, b.rows]),
        np.concatenate([a.codes, b.codes]),
        np.concatenate([a.pages, b.pages]),
        np.concatenate([a.sizes, b.sizes]),
    )
