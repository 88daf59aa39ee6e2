"""A connection pool of this process; a process that was forked makes its own."""

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

_KEPT = 2  # idle connections an address: a join, and one that opens a master beside it
_IDLE = 60.0  # seconds that a connection may be idle; servers and firewalls drop it later


class Pool:
    """Idle connections, to be used again.

    Parameters
    ----------
    clock
        Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: dict[Address, list[tuple[float, Any]]] = {}
        self._inherited: list[Any] = []  # a parent's: never closed, which would end its session
        self._timer: threading.Timer | None = None

    def take(self, address: Address, dialect: Dialect) -> Any:  # noqa: ANN401 - the driver's type
        """Return a connection that no one else uses."""
        self.close_idle()
        with self._lock:
            if idle := self._idle.get(address):
                return idle.pop()[1]
        return dialect.connect(address)

    def give_back(self, address: Address, connection: Any) -> None:  # noqa: ANN401
        """Keep a connection for later; it must have nothing left to read."""
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if len(idle) < _KEPT:
                idle.append((self._clock(), connection))
                self._start_timer()
                return
        discard(connection)

    def close_idle(self, idle: float = _IDLE) -> None:
        """Close connections that were idle for long."""
        latest = self._clock() - idle
        with self._lock:
            old = [c for each in self._idle.values() for since, c in each if since <= latest]
            self._idle = {
                address: [entry for entry in each if entry[0] > latest]
                for address, each in self._idle.items()
            }
        for connection in old:
            discard(connection)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(_IDLE + 1, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def _on_timer(self) -> None:
        self.close_idle()
        with self._lock:
            self._timer = None
            if any(self._idle.values()):
                self._start_timer()

    def forget(self) -> None:
        """Leave all connections to the process that this one was forked from."""
        self._inherited.extend(self._idle.values())
        self._lock, self._idle, self._timer = threading.Lock(), {}, None

    def __len__(self) -> int:
        return sum(len(each) for each in self._idle.values())


def discard(connection: Any) -> None:  # noqa: ANN401
    """Close a connection, whatever state it is in."""
    with suppress(Exception):
        connection.close()


POOL = Pool()
os.register_at_fork(after_in_child=POOL.forget)
