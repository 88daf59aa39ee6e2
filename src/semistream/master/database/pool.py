"""The few connections of this process; a process that was forked makes its own."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.master.database.address import Address
    from semistream.master.database.dialect import Dialect

__all__ = ["POOL", "Pool"]

_KEPT = 2  # connections that rest, for each address
_IDLE = 60.0  # seconds that one rests before it is closed


class Pool:
    """Connections that rest, to be used again.

    Parameters
    ----------
    clock
        Gives the time in seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._resting: dict[Address, list[tuple[float, Any]]] = {}
        self._inherited: list[Any] = []  # a parent's: never closed, which would end its session
        self._timer: threading.Timer | None = None

    def take(self, address: Address, dialect: Dialect) -> Any:  # noqa: ANN401 - the driver's type
        """Give a connection that nobody else uses."""
        self.close_idle()
        with self._lock:
            resting = self._resting.get(address)
            if resting:
                return resting.pop()[1]
        return dialect.connect(address)

    def give_back(self, address: Address, connection: Any) -> None:  # noqa: ANN401
        """Let a connection rest; it must have nothing left to read."""
        with self._lock:
            resting = self._resting.setdefault(address, [])
            if len(resting) < _KEPT:
                resting.append((self._clock(), connection))
                self._wake_later()
                return
        discard(connection)

    def close_idle(self, idle: float = _IDLE) -> None:
        """Close the connections that have rested for long."""
        latest = self._clock() - idle
        with self._lock:
            old = [c for each in self._resting.values() for since, c in each if since <= latest]
            self._resting = {
                address: [entry for entry in each if entry[0] > latest]
                for address, each in self._resting.items()
            }
        for connection in old:
            discard(connection)

    def _wake_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(_IDLE + 1, self._woken)
            self._timer.daemon = True
            self._timer.start()

    def _woken(self) -> None:
        self.close_idle()
        with self._lock:
            self._timer = None
            if any(self._resting.values()):
                self._wake_later()

    def forget(self) -> None:
        """Leave all connections to the process that this one was forked from."""
        self._inherited.extend(self._resting.values())
        self._lock, self._resting, self._timer = threading.Lock(), {}, None

    def __len__(self) -> int:
        return sum(len(each) for each in self._resting.values())


def discard(connection: Any) -> None:  # noqa: ANN401
    """Close a connection, whatever state it is in."""
    with suppress(Exception):
        connection.close()


POOL = Pool()
os.register_at_fork(after_in_child=POOL.forget)
