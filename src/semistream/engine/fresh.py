"""Rows of a database that are held for a while, and keys known to be absent for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistream.arrow.keys import is_among
from semistream.arrow.memory import take_rows
from semistream.arrow.types import row_bytes
from semistream.engine.cache import Cache
from semistream.engine.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.master.database.feeds.changes import Changes

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

__all__ = ["MICROSECONDS", "Absent", "FreshRows"]

MICROSECONDS = 1_000_000
"""In a second."""
_EARLY = 16  # this part of its life earlier a row may go: then many go at once
_MOST_COUNTED = 254
_ENTRY = 24  # bytes of a key that is known to be absent: code, second hash, time


class Absent:
    """Keys that the database said it does not have, and when; the oldest go first.

    Parameters
    ----------
    capacity
        The most bytes that it will ever have.
    ttl
        Microseconds for which an answer holds, None for ever.

    Examples
    --------
    >>> absent = Absent(capacity=1 << 10, ttl=10)
    >>> absent.add(np.array([4, 9]), np.array([1, 1]), now=0)
    >>> absent.holds(np.array([9, 9, 5]), np.array([1, 2, 1])).tolist()
    [True, False, False]
    >>> absent.expire(now=10)
    >>> len(absent)
    0
    """

    def __init__(self, capacity: int, ttl: int | None) -> None:
        self._most = max(1, capacity // (3 * _ENTRY))  # old, new and both, for a moment
        self._ttl = ttl
        self._entries = np.empty((3, 0), dtype=np.int64)  # codes in order, checks, times

    def __len__(self) -> int:
        return self._entries.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._entries.nbytes

    def add(self, codes: Codes, checks: Codes, now: int) -> None:
        """Note keys by code and second hash."""
        codes, checks = codes[-self._most :], checks[-self._most :]
        new = np.stack([codes, checks, np.full(len(codes), now)])
        old = self._entries[:, ~is_among(self._entries[0], np.sort(codes))]
        young = np.sort(np.argsort(-old[2], kind="stable")[: self._most - len(codes)])
        both = np.concatenate([old[:, young], new], axis=1)
        self._entries = both[:, np.argsort(both[0], kind="stable")]

    def holds(self, codes: Codes, checks: Codes) -> Flags:
        """Tell which keys are known to be absent."""
        if not len(self):
            return np.zeros(len(codes), dtype=np.bool_)
        known, others, _ = self._entries
        place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        found: Flags = (known[place] == codes) & (others[place] == checks)
        return found

    def drop(self, codes: Codes | None) -> None:
        """Forget these codes; None: all."""
        if codes is None:
            self._entries = self._entries[:, :0]
        else:
            self._entries = self._entries[:, ~is_among(self._entries[0], np.sort(codes))]

    def expire(self, now: int) -> None:
        """Forget what is too old, and what soon will be."""
        if self._ttl is not None and len(self) and now - self._entries[2].min() >= self._ttl:
            young = now - self._entries[2] < self._ttl - self._ttl // _EARLY
            self._entries = self._entries[:, young]


class FreshRows:
    """A cache of the most frequent rows whose answers grow old, from when they were fetched.

    Parameters
    ----------
    schema
        The columns of a page; the first is the code.
    capacity
        Bytes for rows, absent keys and counters together.
    lives
        Seconds for which a row holds, and for which that there is none; None for ever.
    changes
        What a change feed notes.
    row
        Bytes of a row, about.
    clock
        Gives the time in seconds.
    """

    def __init__(
        self,
        schema: pa.Schema,
        capacity: int,
        lives: tuple[float | None, float | None],
        changes: Changes,
        row: float,
        clock: Callable[[], float],
    ) -> None:
        ttl, absent_ttl = (None if s is None else int(s * MICROSECONDS) for s in lives)
        self._sketch = Sketch(max(8, capacity // 16))
        self._capacity = capacity - self._sketch.nbytes - capacity // 8
        self.absent = Absent(capacity // 8, absent_ttl)
        self.rows = Cache(schema, self._capacity)
        self._ttl, self._changes, self._clock = ttl, changes, clock
        self._seen = changes.end
        self._threshold = 0.0  # how often a row must have been asked for, for its bytes
        self._counted = 0
        self._period = 10 * max(1024, self._capacity / self.rows.cost(1, row))

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self.rows.nbytes + self.absent.nbytes + self._sketch.nbytes

    @property
    def evicted(self) -> int:
        """How many rows had to go."""
        return self.rows.evicted

    def now(self) -> int:
        """Give the time in microseconds."""
        return int(self._clock() * MICROSECONDS)

    def refresh(self) -> int:
        """Drop what has changed or is too old; give the place up to which changes are known."""
        self._drop_changed()
        now = self.now()
        self.absent.expire(now)
        rows, ttl = self.rows, self._ttl
        if ttl is not None and len(rows) and now - int(rows.born.min()) >= ttl:
            rows.epoch(lambda cache: now - cache.born < ttl - ttl // _EARLY)
        return self._seen

    def _drop_changed(self) -> None:
        self._changes.settle()
        end = self._changes.end
        if end == self._seen:
            return
        codes, self._seen = self._changes.since(self._seen), end
        self.absent.drop(codes)
        if codes is None:
            self.rows.epoch(lambda cache: np.zeros(len(cache), dtype=np.bool_))
            return
        changed = is_among(self.rows.codes, np.sort(codes))
        if changed.any():
            self.rows.epoch(lambda _: ~changed)

    def missed(self, codes: Codes) -> None:
        """Count keys that were not held."""
        self._sketch.add(codes)
        self._counted += len(codes)
        if self._counted > self._period:
            self._counted, self._threshold = 0, self._threshold / 2
            self.rows.hits >>= 1
            self._sketch.age()

    def keep(self, rows: pa.RecordBatch, fetched: int, position: int) -> None:
        """Take in those of the rows, whole join values in order, that are worth it.

        ``fetched`` is when the database was asked, ``position`` what `refresh` gave before: what
        has changed since may be the old rows still.
        """
        codes = rows.column(0).to_numpy()
        changed = self._changes.since(position)
        if changed is None or not len(codes):
            return
        firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        counts = np.diff(firsts, append=len(codes))
        hits = self._sketch.estimate(codes[firsts])
        sizes = np.add.reduceat(row_bytes(rows), firsts)
        price = self.rows.cost.fixed * counts + (self.rows.cost.factor + 1) * sizes
        wanted = self._worth_it(hits / counts, price) & ~is_among(codes[firsts], np.sort(changed))
        mask = np.repeat(wanted, counts)
        if mask.any():
            chosen = take_rows(rows, np.flatnonzero(mask))
            self.rows.stage(chosen, np.repeat(hits, counts)[mask], fetched)
            self.rows.epoch()

    def _worth_it(self, worth: npt.NDArray[np.float64], price: npt.NDArray[np.float64]) -> Flags:
        """Choose values by how often they were asked for; all, as long as there is room."""
        chosen = np.ones(len(worth), dtype=np.bool_)
        if self.rows.claimed + float(price.sum()) > self._capacity:
            chosen = worth > self._threshold
            order = np.flatnonzero(chosen)[np.argsort(-worth[chosen], kind="stable")]
            room = self._room(float(price[order].sum()))
            chosen[order[np.cumsum(price[order]) > room]] = False
        return chosen

    def lack(self, codes: Codes, checks: Codes, fetched: int, position: int) -> None:
        """Note keys that the database does not have."""
        changed = self._changes.since(position)
        if changed is not None and len(codes):
            same = ~is_among(codes, np.sort(changed))
            self.absent.add(codes[same], checks[same], fetched)

    def _room(self, wanted: float) -> float:
        """Give the bytes that are free, after those asked for least have made way."""
        if self.rows.claimed + wanted > self._capacity and len(self.rows):
            wanted = min(wanted, self._capacity / 4)
            self.rows.epoch(lambda cache: self._most_frequent(cache, self._capacity - wanted))
        return self._capacity - self.rows.claimed

    def _most_frequent(self, cache: Cache, room: float) -> Flags:
        firsts = cache.firsts()
        counts = np.diff(firsts, append=len(cache))
        sizes = np.add.reduceat(row_bytes(cache.batch), firsts)
        sizes = cache.cost.fixed * counts + cache.cost.factor * sizes
        worth = cache.hits[firsts] / counts
        order = np.argsort(-worth, kind="stable")
        gone = order[np.cumsum(sizes[order]) > room]
        if len(gone):
            self._threshold = min(float(worth[gone].max()), _MOST_COUNTED)
        stays = np.ones(len(firsts), dtype=np.bool_)
        stays[gone] = False
        return np.repeat(stays, counts)
