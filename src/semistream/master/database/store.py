"""The database of a table: connections, retries, and errors that say what happened."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import SemistreamError, StoreError
from semistream.master.database.columns import decode_rows
from semistream.master.database.mysql import MySQL
from semistream.master.database.postgresql import PostgreSQL

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from semistream.master.database.address import Address
    from semistream.master.database.columns import Column
    from semistream.master.database.dialect import Dialect, Statement

__all__ = ["POOL", "Pool", "Retry", "Store"]

_DIALECTS: dict[str, Dialect] = {"postgresql": PostgreSQL(), "mysql": MySQL()}
_KEPT = 2  # idle connections an address: a join, and one that opens a master beside it
_IDLE = 60.0  # seconds that a connection may be idle; servers and firewalls drop it later


@dataclass(frozen=True)
class Retry:
    """Exponential back-off: pauses double up to a longest one, each times a half to one at random.

    Examples
    --------
    >>> now = iter([0, 0, 1, 3, 7])
    >>> retry = Retry(limit=5, first=1, clock=lambda: next(now), sleep=print, chance=lambda: 1.0)
    >>> [attempt for attempt in retry.attempts()]
    1.0
    2.0
    [1, 2, 3]
    """

    limit: float = 60.0
    """Seconds after the first failure in which attempts begin."""
    first: float = 0.1
    """Seconds of the first pause."""
    most: float = 5.0
    """Seconds of the longest."""
    # Another process's are not the same objects, though the same otherwise.
    clock: Callable[[], float] = field(default=time.monotonic, compare=False)
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False)
    chance: Callable[[], float] = field(default=random.random, compare=False)
    """Returns a number from 0 to 1: those who failed together do not come back together."""

    def attempts(self) -> Iterator[int]:
        """Yield the number of each attempt, after its pause; the first comes at once."""
        number, pause = 1, self.first
        yield number
        start = self.clock()
        while True:
            wait = pause * (0.5 + 0.5 * self.chance())
            if self.clock() - start + wait > self.limit:
                return
            self.sleep(wait)
            number, pause = number + 1, min(self.most, 2 * pause)
            yield number


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


@dataclass(frozen=True)
class Store:
    """The database of one table; it holds no connection, for it is sent to other processes."""

    address: Address
    table: str
    """The table's name, for messages."""
    retry: Retry = field(default_factory=Retry, repr=False)

    @property
    def dialect(self) -> Dialect:
        """The dialect of this kind of database."""
        return _DIALECTS[self.address.kind]

    def ask(self, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever the work returns
        """Do some work with a connection; retry after a transient error."""
        results = self._attempts(lambda: True, lambda connection, _: iter([work(connection)]))
        return list(results)[0]  # noqa: RUF015 - to its end: the connection goes back

    def rows(
        self,
        statement: Statement | Callable[[], Statement | None],
        columns: Sequence[Column],
        room: int,
        numbers: int = 0,
        asked: Callable[[], None] = lambda: None,
    ) -> Iterator[list[pa.Array]]:
        """Run a query; yield its rows in pieces of about ``room`` bytes, column by column.

        Parameters
        ----------
        statement, columns
            The query, and what it selects; a function that returns it for each attempt can ask for
            the rest of what a cut connection did not bring, or return None where that is not known.
        room
            Bytes after which a piece ends.
        numbers
            How many numbers, such as the key's, stand before the columns.
        asked
            Called for each attempt.
        """
        number = [(pa.int64(), self.dialect.lenenc)] * numbers
        kinds, texts = zip(*number, *((c.kind, c.text) for c in columns), strict=True)
        used = False

        def query() -> Statement | None:
            if callable(statement):
                return statement()
            return None if used else statement  # a part of an answer cannot be taken back

        pieces = self._attempts(query, lambda c, q: self._pieces(c, q, room), asked)
        for data, count in pieces:
            used = True
            try:
                yield decode_rows(data, count, kinds, texts, self.dialect.lenenc)
            except (pa.ArrowInvalid, StoreError) as error:
                msg = (
                    f"{self}: its rows cannot be read as they were when it was opened ({error}); "
                    "was the table altered? Open the master again, or start the query anew"
                )
                raise StoreError(msg) from error

    def _pieces(
        self,
        connection: Any,  # noqa: ANN401
        statement: Statement,
        room: int,
    ) -> Iterator[tuple[bytes, int]]:
        held: list[bytes] = []
        size = 0
        for message in self.dialect.messages(connection, statement):
            held.append(message)
            size += len(message)
            if size >= room:
                piece, size = (b"".join(held), len(held)), 0
                held.clear()  # before anyone works with the piece
                yield piece
        if held:
            piece = b"".join(held), len(held)
            held.clear()
            yield piece

    def _attempts(
        self,
        query: Callable[[], Any],
        work: Callable[[Any, Any], Iterator[Any]],
        asked: Callable[[], None] = lambda: None,
    ) -> Iterator[Any]:
        """Yield what work on a query yields; retry transient errors while there is a query."""
        number, last, wanted = 0, None, None
        for number in self.retry.attempts():  # noqa: B007 - the last one is reported
            wanted = query()
            if wanted is None:
                break
            asked()
            last = yield from self._attempt(lambda connection: work(connection, wanted))  # noqa: B023
            if last is None:
                return
            if self.dialect.is_transient(last) is False:  # None: the socket's own error
                break
        assert last is not None  # noqa: S101 - for the type checker
        shown = last if self.address.hide(str(last)) == str(last) else None
        raise self._failure(last, 0 if wanted is None else number) from shown

    def _attempt(
        self, work: Callable[[Any], Iterator[Any]]
    ) -> Generator[Any, None, Exception | None]:
        """Yield what work yields; return its error, if it is the database's."""
        connection = None
        try:
            connection = POOL.take(self.address, self.dialect)
            yield from work(connection)
        except Exception as error:
            discard(connection)
            theirs = isinstance(error, OSError) or self.dialect.is_transient(error) is not None
            if isinstance(error, SemistreamError) or not theirs:
                raise
            return error
        except BaseException:  # the reader went away in the middle of an answer
            discard(connection)
            raise
        POOL.give_back(self.address, connection)
        return None

    def _failure(self, error: Exception, attempts: int) -> StoreError:
        """Return the error to raise; without attempts, a part of an answer was used already."""
        cause = self.address.hide(" ".join(str(error).split()))
        if self.dialect.is_transient(error) is False:
            return StoreError(f"{self}: the database refuses: {cause}")
        tried = f"no answer after {attempts} attempts within {self.retry.limit:g} s, the last"
        if attempts == 1:
            tried = f"no answer, and retry={self.retry.limit:g} leaves no time for another attempt"
        if attempts == 0:
            tried = "an answer was cut after a part of it was used, so it was not asked for again"
        msg = (
            f"{self}: {tried}: {cause}. No row was taken for absent; see that the database can be "
            "reached, and start again (retry= waits longer)"
        )
        return StoreError(msg)

    def __str__(self) -> str:
        return f"{self.address}, table {self.table}"
