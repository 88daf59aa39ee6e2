"""Rows of a database that all joins on a host keep together, while they are fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import take_rows
from semistream.engine.fresh import MICROSECONDS, AbsentKeys, FreshRows, Moment, group_values
from semistream.engine.ranking import keep_best
from semistream.hotset.sizes import BESIDE
from semistream.kernels.counting import ABSENT, COUNTS, FOREVER, OLD, mark_fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from semistream.engine.cache import Found
    from semistream.hotset.plan import Host
    from semistream.hotset.shards import Shards
    from semistream.master.database.master import DatabaseMaster

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    Marks = npt.NDArray[np.uint8]

__all__ = ["HostRows", "View"]


class View:
    """The fresh rows of a hot set: a `semistream.engine.cache.CachedRows`.

    Parameters
    ----------
    shards
        The hot set.
    marks
        The state of each of its rows, see `semistream.kernels.counting.mark_fresh`.
    rows, absent
        Number of rows that are fresh, and of keys known to be absent.
    """

    def __init__(self, shards: Shards, marks: Marks, rows: int, absent: int) -> None:
        self.shards, self._marks = shards, marks
        self._all, self._any_absent = rows == len(marks), absent > 0
        self.widest, self.gather = shards.widest, shards.gather

    @property
    def nbytes(self) -> int:
        """Bytes that the join has by itself, beside the hot set."""
        return self._marks.nbytes

    def __len__(self) -> int:
        return len(self.shards)

    def probe(
        self, codes: Codes, cursor: tuple[int, int], once: bool, pairs: Found, hit: Flags
    ) -> tuple[int, int, int]:
        """Probe for codes; rows that are not fresh are no hits."""
        found, *after = self.shards.probe(codes, cursor, once, pairs, hit)
        if not self._all:
            rows, blocks, positions = pairs
            counts = self._marks[self.shards.base[blocks[:found]] + positions[:found]] == COUNTS
            hit[rows[:found][~counts]] = False
            kept = int(np.count_nonzero(counts))
            for each in pairs:
                each[:kept] = each[:found][counts]
            found = kept
        return found, after[0], after[1]

    def lacks(self, codes: Codes) -> Flags:
        """Return which codes are known to be absent."""
        if not self._any_absent:
            return np.zeros(len(codes), dtype=np.bool_)
        first = self.shards.find(codes)
        lacking: Flags = (first >= 0) & (self._marks[first] == ABSENT)
        return lacking


class HostRows(FreshRows):
    """The rows that all joins on a host keep together.

    Parameters
    ----------
    host
        The memory that they share.
    master
        Whose rows they are.
    capacity
        Bytes for absent keys of this join alone, where codes do not tell keys apart.
    clock
        Returns the time in seconds, the same to all processes of the host.

    Notes
    -----
    A row expires up to a sixteenth of its TTL early, so that many expire in one pass. It is fresh
    only if this process has heard of no change of it since it was asked for.
    """

    def __init__(
        self, host: Host, master: DatabaseMaster, capacity: int, clock: Callable[[], float]
    ) -> None:
        self._state, self._schema = host.open(), host.schema
        self._state.alive = self._alive
        self._changes, self._clock = master.changes, clock
        self._ttls = tuple(
            FOREVER if ttl is None else int(ttl * MICROSECONDS)
            for ttl in (master.ttl, master.absent_ttl)
        )
        self._row = host.row_bytes + BESIDE
        self._exact = master.keys.exact
        self._own = AbsentKeys(capacity, self._ttls[1])
        self._view: View | None = None
        self._mark = -1
        self._seen = -1
        self._until = self._counted = 0

    @property
    def memory_used(self) -> dict[str, int]:
        """Bytes of this join (absent keys, marks of fresh rows), and of all on the host."""
        marks = 0 if self._view is None else self._view.nbytes
        return {"cache": self._own.nbytes, "freshness": marks, **self._state.memory_used}

    def _now(self) -> int:
        return int(self._clock() * MICROSECONDS)

    def refresh(self) -> Moment:
        """Take in what has changed; return the present moment."""
        self._changes.distrust()
        now, stamps = self._now(), self._changes.stamps
        stamps.note(self._changes, now)
        if stamps.version != self._seen:
            self._seen = stamps.version
            self._own.drop(None)
        self._own.expire(now)
        return Moment(now)

    @property
    def rows(self) -> View | None:
        """The newest hot set, until `rest`; none while changes are not heard."""
        shards = self._state.newest() if self._changes.trusted else None
        if shards is None:
            return None
        view, mark = self._view, self._changes.stamps.version
        if view is None or view.shards is not shards or self._mark != mark or self._is_over:
            self._view = None  # so that there are never two
            self._view, self._mark = self._marked(shards), mark
        return self._view

    @property
    def _is_over(self) -> bool:
        return self._now() >= self._until

    def _marked(self, shards: Shards) -> View:
        """Mark the rows of a hot set; note until when these marks hold."""
        marks, fresh, absent, until = np.empty(len(shards), dtype=np.uint8), 0, 0, []
        for number, generation in shards.held:
            start = shards.base[number]
            some = marks[start : start + len(generation)]
            end, *counts = self._mark_rows(generation.batch, some)
            until.append(end)
            fresh, absent = fresh + counts[0], absent + counts[1]
        self._until = min(until)
        return View(shards, marks, fresh, absent)

    def _mark_rows(self, batch: pa.RecordBatch, marks: Marks) -> tuple[int, int, int]:
        """Mark rows; return until when that holds, and how many are fresh and absent."""
        codes, born = (batch.column(i).to_numpy() for i in (0, batch.num_columns - 1))
        stamps = self._changes.stamps
        changed = stamps.when, stamps.last
        counts: tuple[int, int, int] = mark_fresh(
            born, codes, *changed, self._now(), self._ttls, marks
        )
        return counts

    def _alive(self, batch: pa.RecordBatch) -> Flags:
        marks = np.empty(batch.num_rows, dtype=np.uint8)
        self._mark_rows(batch, marks)
        alive: Flags = marks != OLD
        return alive

    def rest(self) -> None:
        """Let others overwrite the hot set."""
        self._state.rest()

    def lacks(self, codes: Codes, checks: Callable[[], Codes]) -> Flags:
        """Return which keys are known to be absent."""
        if not self._exact:
            return self._own.holds(codes, checks() if len(self._own) else codes)
        view = self.rows
        return np.zeros(len(codes), dtype=np.bool_) if view is None else view.lacks(codes)

    def count_missed(self, codes: Codes) -> None:
        """Count keys that were not held."""
        self._state.sketch.add(codes)

    def keep(self, rows: pa.RecordBatch, asked: Moment) -> None:
        """Stage those rows, whole join values in order, that are asked for often enough.

        Rows that change after they were ``asked`` for are not fresh to those who hear of it.
        """
        if not rows.num_rows or not self._changes.trusted:
            return
        codes, counts, sizes = group_values(rows)
        hits = self._state.sketch.estimate(codes)
        mask = np.repeat(self._hottest(hits, counts, sizes), counts)
        if mask.any():
            some = take_rows(rows.select(self._schema.names[:-1]), np.flatnonzero(mask))
            self._stage(some.columns, asked.time, np.repeat(hits, counts)[mask])

    def keep_absent(self, codes: Codes, checks: Codes, asked: Moment) -> None:
        """Remember keys that the database does not have."""
        if not len(codes) or not self._changes.trusted:
            return
        if not self._exact:
            self._own.add(codes, checks, asked.time)
            return
        hits = self._state.sketch.estimate(codes)
        ones = np.ones(len(codes), dtype=np.int64)
        chosen = self._hottest(hits, ones, ones * int(self._row))
        if chosen.any():
            count = int(np.count_nonzero(chosen))
            nulls = [pa.nulls(count, kind) for kind in self._schema.types[1:-1]]
            self._stage([pa.array(codes[chosen]), *nulls], -asked.time, hits[chosen])

    def _stage(self, columns: list[pa.Array], born: int, hits: Codes) -> None:
        times = pa.array(np.full(len(hits), born))
        rows = pa.RecordBatch.from_arrays([*columns, times], schema=self._schema)
        self._state.stage(rows, hits)

    def _hottest(self, hits: Codes, counts: Codes, sizes: Codes) -> Flags:
        """Choose values asked for often enough, as many as may be staged."""
        chosen: Flags = hits > self._state.threshold * counts
        # An Arrow message has a header, and padding for each column.
        room = self._state.staging - 1024 - 128 * len(self._schema)
        worth = hits[chosen] / counts[chosen]
        chosen[chosen] = keep_best(worth, sizes[chosen] + 16, room)[0]
        return chosen

    def publish(self, rows_in: int) -> None:
        """Count stream rows; make the next hot set, if there is enough for it."""
        self._state.count(rows_in - self._counted)
        self._counted = rows_in
        self._state.publish()

    def close(self) -> None:
        """Leave to the others what was learnt."""
        self._view = None
        self._state.close()
