"""Rows of a database that all joins on a host hold together, as long as they are fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import take_rows
from semistream.arrow.types import row_bytes
from semistream.engine.fresh import MICROSECONDS, Absent
from semistream.hotset.sizes import BESIDE
from semistream.kernels.loops import ABSENT, COUNTS, FOREVER, OLD, mark_fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from semistream.hotset.plan import Host
    from semistream.hotset.slot import Generation
    from semistream.master.database.master import DatabaseMaster

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    Marks = npt.NDArray[np.uint8]

__all__ = ["HostRows", "View"]


class View:
    """A hot set without the rows that do not count now, and without the keys that are absent.

    It has what `semistream.engine.cache.Held` asks for.

    Parameters
    ----------
    generation
        The hot set.
    marks
        What is to be said of each of its rows, see `semistream.kernels.loops.mark_fresh`.
    rows, absent
        How many rows count, and how many keys are absent.
    """

    def __init__(self, generation: Generation, marks: Marks, rows: int, absent: int) -> None:
        self._generation, self._marks = generation, marks
        self._all, self._any_absent = rows == len(marks), absent > 0
        self.batch, self.widest = generation.batch, generation.widest

    @property
    def nbytes(self) -> int:
        """Bytes that the join has by itself: all but the hot set."""
        return self._marks.nbytes

    def __len__(self) -> int:
        return len(self._generation)

    def probe(
        self,
        codes: Codes,
        cursor: tuple[int, int],
        once: bool,
        rows: Codes,
        positions: Codes,
        hit: Flags,
    ) -> tuple[int, int, int]:
        """Look codes up; those of rows that do not count are not found."""
        found, *after = self._generation.probe(codes, cursor, once, rows, positions, hit)
        if not self._all:
            counts = self._marks[positions[:found]] == COUNTS
            hit[rows[:found][~counts]] = False
            kept = int(np.count_nonzero(counts))
            rows[:kept], positions[:kept] = rows[:found][counts], positions[:found][counts]
            found = kept
        return found, after[0], after[1]

    def lacks(self, codes: Codes) -> Flags:
        """Tell which codes are known to be absent."""
        if not self._any_absent:
            return np.zeros(len(codes), dtype=np.bool_)
        first = self._generation.find(codes)
        lacking: Flags = (first >= 0) & (self._marks[first] == ABSENT)
        return lacking


def _life(ttl: float | None) -> int:
    """Give in microseconds how long an answer holds."""
    return FOREVER if ttl is None else int(ttl * MICROSECONDS)


class HostRows:
    """What `semistream.engine.fresh.FreshRows` is for one join, for all on a host.

    Parameters
    ----------
    host
        What they hold together.
    master
        Whose rows they are.
    capacity
        Bytes for absent keys of this join alone, where codes do not tell keys apart.
    clock
        Gives the time in seconds, the same to all processes of the host.

    Notes
    -----
    A row counts for ``ttl`` after it was asked for, up to a sixteenth less for many to end at once,
    and only if this process has heard of no change of it since then.
    """

    evicted = 0

    def __init__(
        self, host: Host, master: DatabaseMaster, capacity: int, clock: Callable[[], float]
    ) -> None:
        self._state, self._schema = host.open(), host.warm.schema
        self._state.alive = self._alive
        self._changes, self._clock = master.changes, clock
        self._lives = _life(master.ttl), _life(master.absent_ttl)
        self._row = host.warm.row_bytes + BESIDE
        self._exact = master.keys.exact
        self._own = Absent(capacity, self._lives[1])
        self._view: View | None = None
        self._mark = (-1, -1)
        self._noted = -1
        self._until = 0

    @property
    def nbytes(self) -> int:
        """Bytes of absent keys that this join has alone."""
        return self._own.nbytes

    @property
    def freshness(self) -> int:
        """Bytes by which this join knows what of the hot set counts."""
        return 0 if self._view is None else self._view.nbytes

    @property
    def memory_used(self) -> dict[str, int]:
        """Bytes that all joins hold together."""
        return self._state.memory_used

    def now(self) -> int:
        """Give the time in microseconds."""
        return int(self._clock() * MICROSECONDS)

    def refresh(self) -> int:
        """Take in what has changed."""
        self._changes.settle()
        self._changes.stamps.note(self._changes, self.now())
        if self._changes.stamps.version != self._noted:
            self._noted = self._changes.stamps.version
            self._own.drop(None)
        self._own.expire(self.now())
        return 0

    @property
    def rows(self) -> View | None:
        """The newest hot set, until `probed`; none while changes are not heard."""
        generation = self._state.newest() if self._changes.trusted else None
        if generation is None:
            return None
        mark = generation.number, self._changes.stamps.version
        if self._view is None or self._mark != mark or self.now() >= self._until:
            self._view = None  # so that there are never two
            marks, (self._until, *counts) = self._marked(generation.batch)
            self._view, self._mark = View(generation, marks, *counts), mark
        return self._view

    def _marked(self, batch: pa.RecordBatch) -> tuple[Marks, tuple[int, int, int]]:
        """Tell what of a hot set counts, until when, and how many rows and absent keys do."""
        codes, born = (batch.column(i).to_numpy() for i in (0, batch.num_columns - 1))
        marks, stamps = np.empty(len(codes), dtype=np.uint8), self._changes.stamps
        changed = stamps.when, stamps.last
        return marks, mark_fresh(born, codes, *changed, self.now(), self._lives, marks)

    def _alive(self, batch: pa.RecordBatch) -> Flags:
        alive: Flags = self._marked(batch)[0] != OLD
        return alive

    def probed(self) -> None:
        """Let others overwrite the hot set."""
        self._state.rest()

    @property
    def absent(self) -> HostRows:
        """The keys that are known to be absent."""
        return self

    def __len__(self) -> int:
        return 1

    def holds(self, codes: Codes, checks: Codes) -> Flags:
        """Tell which keys are known to be absent."""
        if not self._exact:
            return self._own.holds(codes, checks)
        view = self.rows
        return np.zeros(len(codes), dtype=np.bool_) if view is None else view.lacks(codes)

    def missed(self, codes: Codes) -> None:
        """Count keys that were not held."""
        self._state.sketch.add(codes)

    def keep(self, rows: pa.RecordBatch, fetched: int, position: int) -> None:  # noqa: ARG002
        """Stage those of the rows, whole join values in order, that are worth it.

        ``fetched`` is when the database was asked. What was said to have changed since then is not
        looked at afterwards.
        """
        codes = rows.column(0).to_numpy()
        if not len(codes) or not self._changes.trusted:
            return
        firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        counts = np.diff(firsts, append=len(codes))
        hits = self._state.sketch.estimate(codes[firsts])
        chosen = self._hottest(hits, counts, np.add.reduceat(row_bytes(rows), firsts))
        mask = np.repeat(chosen, counts)
        if mask.any():
            some = take_rows(rows.select(self._schema.names[:-1]), np.flatnonzero(mask))
            born = pa.array(np.full(some.num_rows, fetched))
            staged = pa.RecordBatch.from_arrays([*some.columns, born], schema=self._schema)
            self._state.stage(staged, np.repeat(hits, counts)[mask])

    def lack(self, codes: Codes, checks: Codes, fetched: int, position: int) -> None:  # noqa: ARG002
        """Note keys that the database does not have."""
        if not len(codes) or not self._changes.trusted:
            return
        if not self._exact:
            self._own.add(codes, checks, fetched)
            return
        hits = self._state.sketch.estimate(codes)
        ones = np.ones(len(codes), dtype=np.int64)
        chosen = self._hottest(hits, ones, ones * int(self._row))
        count = int(np.count_nonzero(chosen))
        if count:
            nulls = [pa.nulls(count, kind) for kind in self._schema.types[1:-1]]
            born = pa.array(np.full(count, -fetched))
            columns = [pa.array(codes[chosen]), *nulls, born]
            staged = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            self._state.stage(staged, hits[chosen])

    def _hottest(self, hits: Codes, counts: Codes, sizes: Codes) -> Flags:
        """Choose values asked for often enough, as many as may be staged."""
        chosen: Flags = hits > self._state.threshold * counts
        order = np.flatnonzero(chosen)
        order = order[np.argsort(-hits[order] / counts[order], kind="stable")]
        # A message has a head, and paddings.
        room = self._state.staging - 1024 - 128 * len(self._schema)
        chosen[order[np.cumsum(sizes[order] + 16) > room]] = False
        return chosen

    def publish(self, rows: int) -> None:
        """Count stream rows; make the next hot set, if there is enough for it."""
        self._state.count(rows)
        self._state.publish()

    def close(self) -> None:
        """Leave to the others what was learnt."""
        self._view = None
        self._state.close()
