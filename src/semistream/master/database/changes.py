"""Keys that a change feed says have changed, for the caches that hold their rows."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Codes = npt.NDArray[np.int64]

__all__ = ["Changes"]

_MOST = 1 << 20  # codes that are remembered; whoever is behind them forgets all


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

    def add(self, codes: Codes | None) -> None:
        """Note that the rows of these codes have changed; None: any may have."""
        with self._lock:
            self.end += 1
            if codes is None:
                self._noted.clear()
                self._first, self._size = self.end, 0
                return
            self._noted.append(codes)
            self._size += len(codes)
            while self._size > _MOST:
                self._size -= len(self._noted.popleft())
                self._first += 1

    def since(self, position: int) -> Codes | None:
        """Give the codes noted since ``end`` was this; None where they are not all known."""
        with self._lock:
            if position < self._first:
                return None
            some = list(self._noted)[position - self._first :]
        return np.concatenate([np.empty(0, dtype=np.int64), *some])

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, _: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc] # another process has its own feed
