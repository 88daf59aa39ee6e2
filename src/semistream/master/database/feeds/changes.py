"""Keys that a change feed says have changed, for the caches that hold their rows."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.master.database.feeds.follower import Follower, Unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from semistream.arrow.keys import Keys
    from semistream.master.database.feeds.feed import Feed

    Codes = npt.NDArray[np.int64]

__all__ = ["Changes", "Stamps"]

_SLOTS = 1 << 13
_MOST = 1 << 20  # codes that are remembered; whoever is behind them forgets all
_ENTRY = 16  # so many codes are the bytes of a list of them


class Stamps:
    """When keys have changed, as far as this process was told.

    A key shares its time with a few others: that one of them changed costs those a query.
    """

    def __init__(self) -> None:
        self.when = np.full(_SLOTS, -1, dtype=np.int64)
        """By the low bits of their code."""
        self.last = -1
        """When any of them may have."""
        self._seen = 0
        self.version = 0
        """Grows with each change."""

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
        self._noted: deque[Codes] = deque()
        self._first = self.end = 0
        self._size = 0
        self.stamps = Stamps()
        self.follower: Follower | None = None
        """Who adds to this, where there is a feed."""

    @property
    def trusted(self) -> bool:
        """Whether every change is known; where there is no feed, nobody asks for that."""
        return self.follower is None or self.follower.trusted

    def listen(self, feed: Feed, keys: Keys, padded: Sequence[bool]) -> None:
        """Follow a feed, from now on and as long as this is needed.

        ``padded`` says which columns of the key have blanks at their end that do not count.
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
        """Note that the rows of these codes have changed; None: any may have."""
        if codes is not None and not len(codes):
            return  # a sign of life
        with self._lock:
            self.end += 1
            if codes is None:
                self._noted.clear()
                self._first, self._size = self.end, 0
                return
            self._noted.append(codes)
            self._size += len(codes) + _ENTRY
            while self._size > _MOST:
                self._size -= len(self._noted.popleft()) + _ENTRY
                self._first += 1

    def since(self, position: int) -> Codes | None:
        """Give the codes noted since ``end`` was this; None where they are not all known."""
        with self._lock:
            if position < self._first:
                return None
            some = list(islice(reversed(self._noted), self.end - position))
        return np.concatenate([np.empty(0, dtype=np.int64), *some[::-1]])

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, _: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc] # another process has its own feed


def _adding(
    known: weakref.ref[Changes], keys: Keys, padded: Sequence[bool]
) -> Callable[[Sequence[pa.Array] | None], None]:
    """Give what a follower calls; when nobody needs it any more, it ends."""

    def changed(columns: Sequence[pa.Array] | None) -> None:
        changes = known()
        if changes is None:
            raise Unheard
        codes = None if columns is None else keys.encode(_stripped(columns, padded))
        changes.add(None if codes is None else codes.values[codes.valid])

    return changed


def _stripped(columns: Sequence[pa.Array], padded: Sequence[bool]) -> list[pa.Array]:
    """Give key columns as they are fetched: without the blanks that fill a char(n)."""
    pairs = zip(columns, padded, strict=True)
    return [pc.utf8_rtrim(column, " ") if blanks else column for column, blanks in pairs]
