"""`adaptive` on a database: hot rows are cached, the others are queried by lists of keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from semistream.arrow.gather import OutputColumns
from semistream.arrow.keys import is_among
from semistream.arrow.memory import concat_rows, take
from semistream.arrow.types import row_bytes
from semistream.engine.algorithm import Algorithm, share
from semistream.engine.engine import Engine
from semistream.engine.fresh import ProcessRows
from semistream.engine.pages import BatchPage
from semistream.engine.plan import Components, Settings
from semistream.engine.window import Chunk
from semistream.errors import RowTooLargeError
from semistream.hotset.plan import Host
from semistream.hotset.rows import HostRows
from semistream.kernels.chains import WAITING
from semistream.master.database.fetch import Wanted
from semistream.master.files.reader import PageReader
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.engine.cache import CachedRows
    from semistream.engine.engine import Batches, Sifted
    from semistream.engine.fresh import FreshRows, Moment
    from semistream.engine.operator import Operator
    from semistream.engine.plan import MemoryUse, Plan, Runtime, Task
    from semistream.master.database.fetch import Fetched
    from semistream.master.database.master import DatabaseMaster

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

__all__ = ["KeyListSettings", "KeyLists", "KeyedEngine"]

_MOST_KEYS = 1 << 16  # in one query
_LARGEST_FETCH = 32 << 20  # bytes, however large the budget
_A_KEY, _A_NUMBER = 160, 80  # bytes of a key on its way: as an object, as text, in the query
_KEY_COPIES = 6  # of a long key on its way: as an object, as text, escaped, in the query, sent
_COPIES = 4  # of a piece of an answer: as it came, where its fields are, as columns, and its rest
_NOTHING = 1e-9  # a share must be more than 0
_ABSENT = 0.1  # share for absent keys, where the host's hot set cannot have them: hashed keys
_EXACT, _HASHED = 24, 64  # bytes a row that it takes to find the keys that wait
_AT_ONCE = 1 << 14  # rows whose keys are hashed in one call


@dataclass(frozen=True)
class KeyListSettings(Settings):
    """Keys and bytes of a query at most, and bytes of an answer that are taken at a time."""

    by: str = ""
    request_keys: int = 0
    request_bytes: int = 0
    piece_bytes: int = 0


class KeyedEngine(Engine):
    """An engine whose window is answered by queries for the keys that wait in it.

    A request for some keys takes the place of a page: rows that wait for one of its keys get the
    request's number as their page, and meet what the database sends.
    """

    def __init__(
        self, task: Task, plan: Plan, algorithm: type[Algorithm], runtime: Runtime
    ) -> None:
        # `choose` gives this engine to masters in databases alone.
        self._table = table = cast("DatabaseMaster", task.spec.master)
        table.listen()
        self._settings = cast("KeyListSettings", plan.settings)
        room, clock = plan.components.cache, runtime.clock
        self.fresh: FreshRows
        if isinstance(task.host, Host):
            self.fresh = HostRows(task.host, table, room, clock)
        else:
            self.fresh = ProcessRows(table, room, clock)
        self._request_bytes = self._fetched_bytes = 0
        super().__init__(task, plan, algorithm, runtime)

    def _open_reader(self, parts: int, run: int | None) -> PageReader:  # noqa: ARG002
        return _NoPages()

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

    def _probe(self, chunk: Chunk, cache: CachedRows) -> Sifted:
        """Answer rows from the cache; one whose code is there for another key is not answered."""
        if self.master.keys.exact:
            return (yield from super()._probe(chunk, cache))
        other = self._other_keys(chunk, cache)
        if not other.any():
            return (yield from super()._probe(chunk, cache))
        if other.all():
            return chunk
        rest, more = (yield from super()._probe(chunk.only(~other), cache)), chunk.only(other)
        return Chunk(
            concat_rows([rest.rows, more.rows]),
            np.concatenate([rest.codes, more.codes]),
            np.concatenate([rest.pages, more.pages]),
            np.concatenate([rest.sizes, more.sizes]),
        )

    def _other_keys(self, chunk: Chunk, cache: CachedRows) -> Flags:
        """Return which rows have a code in the cache that stands for another key there."""
        rows, positions = (np.empty(len(chunk), dtype=np.int64) for _ in range(2))
        blocks, keys = np.empty(len(chunk), dtype=np.int32), self.master.keys
        hit, other = (np.zeros(len(chunk), dtype=np.bool_) for _ in range(2))
        found = cache.probe(chunk.codes, (0, -1), True, (rows, blocks, positions), hit)[0]
        pairs = rows[:found], blocks[:found], positions[:found]
        kinds = [self.master.page_schema.field(name).type for name in keys.names]
        theirs = OutputColumns(kinds, found)
        cache.gather(keys.names, theirs, pairs)
        ours = [take(chunk.rows.column(n), pa.array(rows[:found])) for n in self.spec.stream_keys]
        other[rows[:found]] = keys.checks(ours) != keys.checks(theirs.arrays())
        return other

    # -- asking for keys --------------------------------------------------------------------

    def _bring(self, *runs: range) -> Batches:  # noqa: ARG002 - all that waits is asked for
        """Ask for all keys that wait, and let the window meet their rows."""
        number, piece = 0, self._settings.piece_bytes
        for wanted in self._requests():
            moment = self.fresh.refresh()
            self._request_bytes = wanted.nbytes
            for answer in self._table.fetch(wanted, piece, self._asked):
                if answer.begins:  # the rows that it answers wait for it as for a page
                    number += 1
                    codes = self.window.codes
                    self.window.pages[(codes >= answer.low) & (codes <= answer.high)] = number
                self._fetched_bytes = int(answer.rows.nbytes)
                self.metrics.fetched += answer.rows.num_rows
                widest = self._checked_width(answer.rows)
                page = BatchPage(number, answer.rows, widest, answer.ends, self._assembler)
                yield from self._match(page)
                if answer.begins and answer.ends:
                    self._learn(wanted, answer, moment)
            self._request_bytes = self._fetched_bytes = 0

    def _asked(self) -> None:
        self.metrics.queries += 1

    def _requests(self) -> Iterator[Wanted]:
        """Yield the keys that wait, each once, in the order of their codes, in requests."""
        chosen, codes, checks = self._distinct()
        most, keys = self._settings.request_keys, self.master.keys
        sizes = None
        if chosen is not None:
            keys_alone = self.window.rows.select(self.spec.stream_keys)
            sizes = np.cumsum(row_bytes(keys_alone)[chosen])
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

    def _fitting(self, sizes: Codes, start: int) -> int:
        """Return where a request ends that begins at a key: at the next one at the least."""
        limit = self._settings.request_bytes + (int(sizes[start - 1]) if start else 0)
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
        pieces = (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))
        checks = [self.master.keys.checks(self._keys_of(piece)) for piece in pieces]
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


class KeyLists(Algorithm):
    """Answer the hot from a cache; ask for the others by lists of keys, each key once.

    Rows that the cache does not answer wait in the window. When it is full, is drained, or its
    oldest row is overdue, all keys that wait are fetched, in few queries. Keys that the database
    does not have are remembered, too.

    Parameters
    ----------
    cache
        The cache's share of the memory that cache and window divide, between 0 and 1.
    """

    name = "adaptive"
    paper = ""
    options = frozenset({"cache"})
    engine: KeyedEngine

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.6, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: output, an answer on its way; cache and window divide the rest.

        Where the host keeps the rows, a join has marks of which are fresh, and no cache.
        """
        master = task.spec.master
        widest = master.statistics.widest_row
        fetch_part = 8 if task.host is None else 2  # without a cache, answers may have more
        fetch = max(2048 + 4 * _COPIES * widest, min(task.memory // fetch_part, _LARGEST_FETCH))
        parts = Components(output=task.output_bytes, fetch=fetch)
        if task.host is not None:
            parts = replace(parts, freshness=task.host.freshness)
            cache = _NOTHING if master.keys.exact else _ABSENT
        rest = max(0, task.memory - parts.total - 2 * task.least_window)
        parts = replace(parts, cache=task.cache_bytes(share("cache", cache) * rest))
        cost = task.cost
        each = _EXACT if master.keys.exact else _HASHED
        left = max(0, task.memory - parts.total)
        requests = int(left * each / (each + cost.fixed + cost.factor * cost.least))
        numbers = master.keys.exact and pa.types.is_integer(master.keys.types[0])
        each_key = _A_NUMBER if numbers else _A_KEY
        settings = KeyListSettings(
            by="key lists",
            request_keys=max(1, min(_MOST_KEYS, fetch // 4 // each_key)),
            request_bytes=fetch // 4 // _KEY_COPIES,
            piece_bytes=max(1, fetch * 3 // 4 // _COPIES),
        )
        return task.split(cls.name, replace(parts, requests=requests), settings)

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start an engine that asks for keys."""
        return KeyedEngine(task, plan, cls, runtime)

    @property
    def cache(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - `CachedRows` or None
        """The rows that are kept."""
        return self.engine.fresh.rows

    def end_probe(self) -> None:
        """Let others overwrite the hot set: while a row waits, no one needs it."""
        self.engine.fresh.rest()

    def before_admission(self, chunk: Chunk) -> None:
        """Count keys that were not held."""
        self.engine.fresh.count_missed(chunk.codes)

    def after_admission(self) -> None:
        """Share with others what was learnt."""
        self.engine.fresh.publish(self.engine.metrics.rows_in)

    def next_pages(self) -> range:
        """Return a range that is not empty: the engine knows what to fetch."""
        return range(1)

    def memory_used(self) -> dict[str, int]:
        """Return the bytes held now, by component."""
        return self.engine.fresh.memory_used

    def close(self) -> None:
        """Leave to the others what was learnt."""
        self.after_admission()
        self.engine.fresh.close()


class _NoPages(PageReader):
    """What an engine has in the place of a disk buffer where there are no pages to read."""

    nbytes = 0

    def __init__(self) -> None:
        self.reads = self.bytes_read = 0

    def sweep(self, parts: Codes) -> Iterator[tuple[slice, Codes]]:
        raise NotImplementedError

    def _read(self, parts: Codes) -> Codes:
        raise NotImplementedError


def _changes(values: Codes) -> Flags:
    """Return which values differ from the one before."""
    new = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new
