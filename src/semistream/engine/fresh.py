"""Rows of a database that are kept while they are fresh, and keys known to be absent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semistream.arrow.keys import is_among
from semistream.arrow.memory import take_rows
from semistream.arrow.types import row_bytes
from semistream.engine.cache import Cache
from semistream.engine.ranking import MOST_COUNTED, keep_best, value_starts
from semistream.engine.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.engine.cache import CachedRows
    from semistream.master.database.master import DatabaseMaster

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

__all__ = ["MICROSECONDS", "AbsentKeys", "FreshRows", "Moment", "ProcessRows", "group_values"]

MICROSECONDS = 1_000_000
"""In a second."""
# Rows may expire up to this fraction of their TTL early, so that many expire in one pass.
_EARLY = 16
_ENTRY = 24  # bytes of an absent key: code, second hash, time


class Moment(NamedTuple):
    """When a database is queried, and how many changes are known by then."""

    time: int
    """In microseconds."""
    changes: int = 0


class FreshRows(ABC):
    """Rows of a database that a process, or all processes of a host, keep while they are fresh.

    A row is fresh for the master's TTL after it was queried, unless it has changed since.
    """

    @property
    def evicted(self) -> int:
        """Rows that had to make way."""
        return 0

    @property
    @abstractmethod
    def rows(self) -> CachedRows | None:
        """The rows that are fresh now, to be probed until `rest`."""

    @abstractmethod
    def refresh(self) -> Moment:
        """Take in what has changed, drop what has expired; return the present moment."""

    @abstractmethod
    def lacks(self, codes: Codes, checks: Callable[[], Codes]) -> Flags:
        """Return which keys are known to be absent; ``checks`` computes their second hashes."""

    @abstractmethod
    def count_missed(self, codes: Codes) -> None:
        """Count keys that were not held."""

    @abstractmethod
    def keep(self, rows: pa.RecordBatch, asked: Moment) -> None:
        """Keep those rows, whole join values in order, that are asked for often enough.

        What has changed since they were ``asked`` for may be outdated, and is not kept.
        """

    @abstractmethod
    def keep_absent(self, codes: Codes, checks: Codes, asked: Moment) -> None:
        """Remember keys that the database does not have."""

    @property
    @abstractmethod
    def memory_used(self) -> dict[str, int]:
        """Bytes held now, by component of the plan."""

    def rest(self) -> None:
        """End a probe: `rows` may be overwritten by others."""

    def publish(self, rows_in: int) -> None:
        """Share with others what was learnt from so many stream rows in all."""

    def close(self) -> None:
        """Release all that is held."""


def group_values(rows: pa.RecordBatch) -> tuple[Codes, Codes, Codes]:
    """Return the code, the number of rows and the bytes of each join value of sorted rows."""
    codes = rows.column(0).to_numpy()
    firsts = value_starts(codes)
    return (
        codes[firsts],
        np.diff(firsts, append=len(codes)),
        np.add.reduceat(row_bytes(rows), firsts),
    )


class AbsentKeys:
    """Keys that the database does not have, and since when that is known; the oldest go first.

    Parameters
    ----------
    capacity
        The most bytes that it will ever have.
    ttl
        TTL of an entry in microseconds; None: no expiry.

    Examples
    --------
    >>> absent = AbsentKeys(capacity=1 << 10, ttl=10)
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
        """Remember keys by code and second hash."""
        codes, checks = codes[-self._most :], checks[-self._most :]
        new = np.stack([codes, checks, np.full(len(codes), now)])
        old = self._entries[:, ~is_among(self._entries[0], np.sort(codes))]
        young = np.sort(np.argsort(-old[2], kind="stable")[: self._most - len(codes)])
        both = np.concatenate([old[:, young], new], axis=1)
        self._entries = both[:, np.argsort(both[0], kind="stable")]

    def holds(self, codes: Codes, checks: Codes) -> Flags:
        """Return which keys are known to be absent."""
        if not len(self):
            return np.zeros(len(codes), dtype=np.bool_)
        known, others, _ = self._entries
        place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        known_absent: Flags = (known[place] == codes) & (others[place] == checks)
        return known_absent

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


class ProcessRows(FreshRows):
    """A cache of the most frequent rows, and of absent keys, that one join has by itself.

    Parameters
    ----------
    master
        Whose rows they are.
    capacity
        Bytes for rows, absent keys and counters together.
    clock
        Returns the time in seconds.
    """

    def __init__(self, master: DatabaseMaster, capacity: int, clock: Callable[[], float]) -> None:
        self._ttl, absent_ttl = (
            None if ttl is None else int(ttl * MICROSECONDS)
            for ttl in (master.ttl, master.absent_ttl)
        )
        self._sketch = Sketch(max(8, capacity // 16))
        self._capacity = capacity - self._sketch.nbytes - capacity // 8
        self._absent = AbsentKeys(capacity // 8, absent_ttl)
        self._rows = Cache(master.page_schema, self._capacity)
        self._changes, self._clock = master.changes, clock
        self._seen = master.changes.end
        self._threshold = 0.0  # hits that a row must have, for its bytes, to be kept
        self._counted = 0
        self._period = 10 * max(1024, self._capacity / self._rows.cost(1, master.row_bytes))

    @property
    def evicted(self) -> int:
        """Rows that had to make way."""
        return self._rows.evicted

    @property
    def rows(self) -> Cache:
        """The rows that are fresh now."""
        return self._rows

    @property
    def memory_used(self) -> dict[str, int]:
        """Bytes held now, by component of the plan."""
        return {"cache": self._rows.nbytes + self._absent.nbytes + self._sketch.nbytes}

    def refresh(self) -> Moment:
        """Drop what has changed or has expired; return the present moment."""
        self._drop_changed()
        now = int(self._clock() * MICROSECONDS)
        self._absent.expire(now)
        rows, ttl = self._rows, self._ttl
        if ttl is not None and len(rows) and now - int(rows.born.min()) >= ttl:
            rows.epoch(lambda cache: now - cache.born < ttl - ttl // _EARLY)
        return Moment(now, self._seen)

    def _drop_changed(self) -> None:
        self._changes.distrust()
        end = self._changes.end
        if end == self._seen:
            return
        codes, self._seen = self._changes.since(self._seen), end
        self._absent.drop(codes)
        if codes is None:
            self._rows.epoch(lambda cache: np.zeros(len(cache), dtype=np.bool_))
            return
        changed = is_among(self._rows.codes, np.sort(codes))
        if changed.any():
            self._rows.epoch(lambda _: ~changed)

    def lacks(self, codes: Codes, checks: Callable[[], Codes]) -> Flags:
        """Return which keys are known to be absent."""
        return self._absent.holds(codes, checks() if len(self._absent) else codes)

    def count_missed(self, codes: Codes) -> None:
        """Count keys that were not held."""
        self._sketch.add(codes)
        self._counted += len(codes)
        if self._counted > self._period:
            self._counted, self._threshold = 0, self._threshold / 2
            self._rows.hits >>= 1
            self._sketch.age()

    def keep(self, rows: pa.RecordBatch, asked: Moment) -> None:
        """Keep those rows, whole join values in order, that are asked for often enough."""
        changed = self._changes.since(asked.changes)
        if changed is None or not rows.num_rows:
            return
        codes, counts, sizes = group_values(rows)
        hits = self._sketch.estimate(codes)
        price = self._rows.cost.fixed * counts + (self._rows.cost.factor + 1) * sizes
        wanted = self._worth_it(hits / counts, price) & ~is_among(codes, np.sort(changed))
        mask = np.repeat(wanted, counts)
        if mask.any():
            chosen = take_rows(rows, np.flatnonzero(mask))
            self._rows.stage(chosen, np.repeat(hits, counts)[mask], asked.time)
            self._rows.epoch()

    def _worth_it(self, worth: npt.NDArray[np.float64], price: npt.NDArray[np.float64]) -> Flags:
        """Choose values by how often they were asked for; all, as long as there is room."""
        chosen = np.ones(len(worth), dtype=np.bool_)
        if self._rows.claimed + float(price.sum()) > self._capacity:
            chosen = worth > self._threshold
            room = self._make_room(float(price[chosen].sum()))
            chosen[chosen] = keep_best(worth[chosen], price[chosen], room)[0]
        return chosen

    def keep_absent(self, codes: Codes, checks: Codes, asked: Moment) -> None:
        """Remember keys that the database does not have."""
        changed = self._changes.since(asked.changes)
        if changed is not None and len(codes):
            same = ~is_among(codes, np.sort(changed))
            self._absent.add(codes[same], checks[same], asked.time)

    def _make_room(self, wanted: float) -> float:
        """Evict the rows asked for least, a quarter at most; return the bytes that are free."""
        if self._rows.claimed + wanted > self._capacity and len(self._rows):
            wanted = min(wanted, self._capacity / 4)
            self._rows.epoch(lambda cache: self._most_frequent(cache, self._capacity - wanted))
        return self._capacity - self._rows.claimed

    def _most_frequent(self, cache: Cache, room: float) -> Flags:
        starts, counts = cache.values()
        worth = cache.hits[starts] / counts
        stays, lost = keep_best(worth, cache.value_bytes(starts, counts), room)
        if not stays.all():
            self._threshold = min(lost, MOST_COUNTED)
        return np.repeat(stays, counts)
