"""A database that is asked: connections, attempts, and errors that say what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import SemistreamError, StoreError
from semistream.master.database.columns import decoded
from semistream.master.database.mysql import MySQL
from semistream.master.database.pool import POOL, discard
from semistream.master.database.postgresql import PostgreSQL
from semistream.master.database.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from semistream.master.database.address import Address
    from semistream.master.database.columns import Column
    from semistream.master.database.dialect import Dialect, Statement

    Attempt = Generator[Any, None, Exception | None]

__all__ = ["NUMBER", "Store"]

_DIALECTS: dict[str, Dialect] = {"postgresql": PostgreSQL(), "mysql": MySQL()}
NUMBER = ("n", pa.int64())
"""What the number of a key is called, and its type."""


@dataclass(frozen=True)
class Store:
    """One table's database; it holds no connection, for it travels."""

    address: Address
    table: str
    """The table's name, for messages."""
    retry: Retry = field(default_factory=Retry, repr=False)

    @property
    def dialect(self) -> Dialect:
        """How it is spoken to."""
        return _DIALECTS[self.address.kind]

    def ask(self, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever the work gives
        """Do some work with a connection; an error that may pass is tried again."""
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
        """Run a query; give its rows in pieces of about ``room`` bytes, column by column.

        Parameters
        ----------
        statement, columns
            The query, and what it selects; a function that gives it for each attempt can ask for
            the rest of what a cut connection did not bring, or give None where that is not known.
        room
            Bytes after which a piece ends.
        numbers
            How many numbers, such as the key's, stand before the columns.
        asked
            Called for each attempt.
        """
        number = [(pa.int64(), self.dialect.form.lenenc)] * numbers
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
                yield decoded(data, count, kinds, texts, self.dialect.form)
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
        """Give what work on a query gives; what may pass is tried again while there is a query."""
        number, last, wanted = 0, None, None
        for number in self.retry.attempts():  # noqa: B007 - the last one is told
            wanted = query()
            if wanted is None:
                break
            asked()
            last = yield from self._attempt(lambda connection: work(connection, wanted))  # noqa: B023
            if last is None:
                return
            if not self._may_pass(last):
                break
        assert last is not None  # noqa: S101 - for the type checker
        shown = last if self.address.hidden(str(last)) == str(last) else None
        raise self._failed(last, 0 if wanted is None else number) from shown

    def _attempt(self, work: Callable[[Any], Iterator[Any]]) -> Attempt:
        """Give what work gives; return its error, if there is one."""
        connection = None
        try:
            connection = POOL.take(self.address, self.dialect)
            yield from work(connection)
        except Exception as error:
            discard(connection)
            ours = isinstance(error, SemistreamError)
            if ours or (
                self.dialect.is_transient(error) is None and not isinstance(error, OSError)
            ):
                raise
            return error
        except BaseException:  # the reader went away in the middle of an answer
            discard(connection)
            raise
        POOL.give_back(self.address, connection)
        return None

    def _may_pass(self, error: Exception) -> bool:
        return self.dialect.is_transient(error) is not False  # None: the socket's own error

    def _failed(self, error: Exception, attempts: int) -> StoreError:
        """Say what happened; without attempts, a part of an answer could not be taken back."""
        cause = self.address.hidden(" ".join(str(error).split()))
        if not self._may_pass(error):
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
