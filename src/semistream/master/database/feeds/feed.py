"""Change feeds: which rows of a database have changed, reported while a join runs."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import MasterError
from semistream.units import elapsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "BEAT",
    "EVERYTHING",
    "Feed",
    "FeedError",
    "Follower",
    "Notice",
    "StopFollowing",
    "key_columns",
    "parse_key",
]

log = logging.getLogger(__name__)

BEAT = 2.0
"""Seconds of silence after which a feed checks that it still works."""
_PATIENCE = 10.0  # seconds without a sign of life after which cached rows are not trusted
_FIRST, _LONGEST = 0.1, 5.0  # seconds of back-off between attempts to listen again


class FeedError(MasterError):
    """A change feed cannot be reached, or was lost; cached rows are not trusted any more."""


class StopFollowing(Exception):  # noqa: N818 - an answer to a follower, not an error of a user
    """No one needs to know of changes any more."""


@dataclass(frozen=True)
class Notice:
    """A report of a feed."""

    keys: tuple[Any, ...] = ()
    """Keys that have changed, as JSON has them: a value, a list of them, or an object."""
    everything: bool = False
    """Whether any row may have changed."""
    by: float | None = None
    """The time up to which all changes were reported; None where that is open."""


EVERYTHING = Notice(everything=True)


class Feed(ABC):
    """A source of changes; a description that can be sent to other processes."""

    @abstractmethod
    def listen(self, clock: Callable[[], float]) -> Iterator[Notice]:
        """Connect, and yield what changes from then on; the first notice has a time, and no keys.

        Every few seconds, at the latest, there is a next one.

        Raises
        ------
        FeedError
            It cannot be reached, or not any more. Whoever listens begins anew.
        """


class Follower:
    """Listens to a feed in a thread, and reports which cached rows are outdated.

    Parameters
    ----------
    feed
        The feed.
    key
        The master's key columns.
    changed
        Callback with the key columns of changed rows, or with None where any row may have changed:
        also when the feed was lost, and again when it is back. `StopFollowing` ends the thread.
    clock
        Returns the time in seconds.

    Notes
    -----
    A message that is not understood counts as a change of everything.
    """

    def __init__(
        self,
        feed: Feed,
        key: pa.Schema,
        changed: Callable[[Sequence[pa.Array] | None], None],
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
        """Whether all changes are known, so that cached rows can be trusted."""
        by = self._by
        return by is not None and self._clock() - by <= _PATIENCE

    def _run(self) -> None:
        delay = _FIRST
        with suppress(StopFollowing):
            while True:
                if self._listen():
                    delay = _FIRST
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST)

    def _listen(self) -> bool:
        """Listen until the feed is lost; return whether there was one."""
        notice = None
        try:
            for notice in self._feed.listen(self._clock):
                self._take(notice)
        except StopFollowing:
            raise
        except Exception as error:  # whatever it is, nothing may be trusted
            if self._by is not None or not isinstance(error, FeedError):
                log.warning("%s; until it is heard again, rows are fetched anew each time", error)
            self._by = None
            self._changed(None)
        return notice is not None

    def _take(self, notice: Notice) -> None:
        if notice.everything or self._by is None:
            self._changed(None)
        elif notice.keys or notice.by is not None:  # a beat checks whether anyone is there
            try:
                columns = key_columns(notice.keys, self._key)
            except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
                log.warning("a change is not understood (%s): all rows are fetched anew", error)
                columns = None
            self._changed(columns)
        if notice.by is not None:
            self._by = notice.by


def parse_key(text: str | bytes) -> Any:  # noqa: ANN401 - what JSON has
    """Read a key; numbers keep all their digits.

    Examples
    --------
    >>> parse_key("17"), parse_key('["a", 1.50]'), parse_key('{"payload": {"id": 3}}')
    (17, ['a', Decimal('1.50')], {'id': 3})
    """
    key = json.loads(text, parse_float=Decimal)
    # Debezium puts the schema beside it.
    wrapped = isinstance(key, dict) and isinstance(key.get("payload"), dict)
    return key["payload"] if wrapped else key


def key_columns(keys: Iterable[Any], schema: pa.Schema) -> list[pa.Array]:
    """Convert keys from JSON to columns of a master's key.

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
