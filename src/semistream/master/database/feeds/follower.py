"""Who follows a change feed: a thread of a process that holds rows of a database."""

from __future__ import annotations

import base64
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.master.database.feeds.feed import FeedError
from semistream.units import elapsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from semistream.master.database.feeds.feed import Feed, Heard

    Changed = Callable[[Sequence[pa.Array] | None], None]

__all__ = ["Follower", "Unheard", "key_columns"]

log = logging.getLogger(__name__)

_PATIENCE = 10.0  # seconds without a sign of life, after which nothing that is held counts
_FIRST, _LONGEST = 0.1, 5.0  # seconds between attempts to listen again


class Unheard(Exception):  # noqa: N818 - an answer to a follower, not an error of a user
    """Nobody needs to know of changes any more."""


class Follower:
    """Listens to a feed in the background, and says which rows that are held do not count.

    Parameters
    ----------
    feed
        Where changes are told.
    key
        The master's key columns.
    changed
        Called with the key columns of changed rows, or with None where any row may have changed:
        also when the feed was lost, and again when it is listened to anew. `Unheard` ends it.
    clock
        Gives the time in seconds.

    Notes
    -----
    A message that is not understood counts as a change of everything.
    """

    def __init__(
        self,
        feed: Feed,
        key: pa.Schema,
        changed: Changed,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._feed, self._key, self._changed, self._clock = feed, key, changed, clock
        self._by: float | None = None
        self._thread = threading.Thread(target=self._run, name="semistream feed", daemon=True)

    def start(self) -> Follower:
        """Begin to listen."""
        self._thread.start()
        return self

    @property
    def trusted(self) -> bool:
        """Whether changes are heard, so that what is held counts."""
        by = self._by
        return by is not None and self._clock() - by <= _PATIENCE

    def _run(self) -> None:
        delay = _FIRST
        with suppress(Unheard):
            while True:
                if self._listen():
                    delay = _FIRST
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST)

    def _listen(self) -> bool:
        """Listen until the feed is lost; tell whether there was one."""
        heard = None
        try:
            for heard in self._feed.hear(self._clock):
                self._take(heard)
        except Unheard:
            raise
        except Exception as error:  # whatever it is, nothing may count
            self._lose(error)
        return heard is not None

    def _take(self, heard: Heard) -> None:
        if heard.everything or self._by is None:
            self._changed(None)
        elif heard.keys or heard.by is not None:  # a beat asks whether anybody is there
            self._changed(self._columns(heard.keys))
        if heard.by is not None:
            self._by = heard.by

    def _columns(self, keys: Iterable[Any]) -> list[pa.Array] | None:
        try:
            return key_columns(keys, self._key)
        except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
            log.warning("a change is not understood (%s): all rows are fetched anew", error)
            return None

    def _lose(self, error: Exception) -> None:
        if self._by is not None or not isinstance(error, FeedError):
            log.warning("%s; until it is heard again, rows are fetched anew each time", error)
        self._by = None
        self._changed(None)


def key_columns(keys: Iterable[Any], schema: pa.Schema) -> list[pa.Array]:
    """Give keys that JSON brought as columns of a master's key.

    Examples
    --------
    >>> schema = pa.schema([("day", pa.date32()), ("id", pa.int64())])
    >>> [c.to_pylist() for c in key_columns([["2024-02-29", 7], {"id": 8, "day": None}], schema)]
    [[datetime.date(2024, 2, 29), None], [7, 8]]
    """
    rows = [_row(key, schema.names) for key in keys]
    return [_column([row[i] for row in rows], field.type) for i, field in enumerate(schema)]


def _row(key: Any, names: Sequence[str]) -> list[Any]:  # noqa: ANN401 - what JSON has
    if isinstance(key, dict):
        return [key[name] for name in names]
    row = key if isinstance(key, list) else [key]
    if len(row) != len(names):
        msg = f"{len(row)} values for a key of {len(names)} columns"
        raise ValueError(msg)
    return row


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    texts = all(isinstance(value, str | None) for value in values)
    if texts and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return pa.array([None if value is None else _bytes(value) for value in values], kind)
    if texts and not pa.types.is_string(kind):
        return pa.array(values, pa.string()).cast(kind)
    parts = pa.types.is_integer(kind) and not all(isinstance(v, int | None) for v in values)
    if parts or pa.types.is_temporal(kind):  # a number may count days or microseconds
        msg = f"{values[0]!r} as {kind}"
        raise TypeError(msg)
    return pa.array(values, kind)


def _bytes(text: str) -> bytes:
    """Read bytes as PostgreSQL writes them, or else as base64."""
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    return base64.b64decode(text, validate=True)
