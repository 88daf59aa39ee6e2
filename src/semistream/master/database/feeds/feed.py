"""Change feeds: which rows of a database have changed, told while a join runs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from semistream.errors import MasterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BEAT", "EVERYTHING", "Feed", "FeedError", "Heard", "parse_key"]

BEAT = 2.0
"""Seconds after which a feed on which nothing was heard is asked whether it still works."""


class FeedError(MasterError):
    """A change feed cannot be listened to, or was lost; what is held does not count any more."""


@dataclass(frozen=True)
class Heard:
    """What a feed has told."""

    keys: tuple[Any, ...] = ()
    """Keys that have changed, as JSON has them: a value, a list of them, or an object."""
    everything: bool = False
    """Whether any row may have changed."""
    by: float | None = None
    """The time by which no change is missing in what was told so far; None where that is open."""


EVERYTHING = Heard(everything=True)


class Feed(ABC):
    """Where changes are told; a description that can be sent to other processes."""

    @abstractmethod
    def hear(self, clock: Callable[[], float]) -> Iterator[Heard]:
        """Connect, and tell what changes from then on; the first has a time, and no keys.

        Every few seconds, at the latest, there is a next one.

        Raises
        ------
        FeedError
            It cannot be reached, or not any more. Whoever listens begins anew.
        """


def parse_key(text: str | bytes) -> Any:  # noqa: ANN401 - what JSON has
    """Read a key; numbers keep all their digits.

    Examples
    --------
    >>> parse_key("17"), parse_key('["a", 1.50]'), parse_key('{"payload": {"id": 3}}')
    (17, ['a', Decimal('1.50')], {'id': 3})
    """
    found = json.loads(text, parse_float=Decimal)
    # Debezium puts the schema beside it.
    wrapped = isinstance(found, dict) and isinstance(found.get("payload"), dict)
    return found["payload"] if wrapped else found
