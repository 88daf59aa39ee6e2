"""Codes that have changed, for the caches that hold their rows."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.master.database.feeds.feed import Follower, StopFollowing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from semistream.arrow.keys import Keys
    from semistream.master.database.feeds.feed import Feed

    Codes = npt.NDArray[np.int64]

__all__ = ["Changes", "Stamps"]

_SLOTS = 1 << 13  # 64 KB: a change outdates one in 8,192 rows beside its own
_MOST = 1 << 20  # codes that are remembered; a cache that is further behind drops all
_ENTRY = 16  # an array takes as much memory as so many codes


class Stamps:
    """When keys have changed, as far as this process knows.

    Keys whose codes share their low bits share a time: a change of one costs the others a query.
    """

    def __init__(self) -> None:
        self.when = np.full(_SLOTS, -1, dtype=np.int64)
        """By the low bits of their code."""
        self.last = -1
        """When any of them may have, for the last time."""
        self._seen = 0
        self.version = 0
        """Number of updates."""

    def note(self, changes: Changes, now: int) -> None:
        """Take in what was added since."""
        end = changes.end
        if end != self._seen:
            codes, self._seen = changes.since(self._seen), end
            if codes is None:
                self.last = now
            else:
                self.when[codes & (_SLOTS - 1)] = now
            self.version += 1


class Changes:
    """A list of codes that grows; each cache reads on from where it was.

    Examples
    --------
    >>> changes = Changes()
    >>> start = changes.end
    >>> changes.add(np.array([7, 9]))
    >>> changes.since(start).tolist(), changes.since(changes.end).tolist()
    ([7, 9], [])
    >>> changes.add(None)
    >>> changes.since(start) is None
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: deque[Codes] = deque()
        self._first = self.end = 0
        self._size = 0
        self.stamps = Stamps()
        self.follower: Follower | None = None
        """The thread that adds to this, where there is a feed."""

    @property
    def trusted(self) -> bool:
        """Whether every change is known, as far as there is a feed."""
        return self.follower is None or self.follower.trusted

    def listen(self, feed: Feed, keys: Keys, padded: Sequence[bool]) -> None:
        """Follow a feed, from now on and as long as this object lives.

        ``padded``: which columns of the key are padded with blanks, which are removed.
        """
        with self._lock:
            if self.follower is None:
                kind = pa.schema(list(zip(keys.names, keys.types, strict=True)))
                self.follower = Follower(feed, kind, _adding(weakref.ref(self), keys, padded))
                self.follower.start()

    def distrust(self) -> None:
        """Count everything as changed while the feed is not heard."""
        if not self.trusted:
            self.add(None)

    def add(self, codes: Codes | None) -> None:
        """Record that the rows of these codes have changed; None: any may have."""
        if codes is not None and not len(codes):
            return  # a sign of life
        with self._lock:
            self.end += 1
            if codes is None:
                self._codes.clear()
                self._first, self._size = self.end, 0
                return
            self._codes.append(codes)
            self._size += len(codes) + _ENTRY
            while self._size > _MOST:
                self._size -= len(self._codes.popleft()) + _ENTRY
                self._first += 1

    def since(self, position: int) -> Codes | None:
        """Return the codes added since ``end`` was ``position``; None where some are forgotten."""
        with self._lock:
            if position < self._first:
                return None
            some = list(islice(reversed(self._codes), self.end - position))
        return np.concatenate([np.empty(0, dtype=np.int64), *some[::-1]])

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, _: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc] # another process has its own feed


def _adding(
    target: weakref.ref[Changes], keys: Keys, padded: Sequence[bool]
) -> Callable[[Sequence[pa.Array] | None], None]:
    """Return the callback of a follower, which ends it when no one needs the changes any more."""

    def changed(columns: Sequence[pa.Array] | None) -> None:
        changes = target()
        if changes is None:
            raise StopFollowing
        if columns is None:
            changes.add(None)
            return
        pairs = zip(columns, padded, strict=True)
        codes = keys.encode([pc.utf8_rtrim(c, " ") if blanks else c for c, blanks in pairs])
        changes.add(codes.values[codes.valid])

    return changed
