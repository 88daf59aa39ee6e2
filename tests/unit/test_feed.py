"""Change feeds: what changes is heard, and what may have been missed counts as changed."""

from __future__ import annotations

import inspect
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

import semistream as ss
from semistream.arrow.keys import Keys
from semistream.errors import OptionError
from semistream.master.database.address import Address
from semistream.master.database.feeds.changes import Changes
from semistream.master.database.feeds.feed import EVERYTHING, Feed, Follower, Notice
from semistream.master.database.feeds.kafka import Topic
from semistream.master.database.feeds.postgresql import Notifications, trigger_sql

if TYPE_CHECKING:
    from collections.abc import Iterator


class Told:
    """A message of a topic."""

    def __init__(self, offset: int, value: bytes = b"", error: KafkaError | None = None) -> None:
        self.offset, self.value, self.error = (lambda: offset), (lambda: value), (lambda: error)

    def key(self) -> None:
        return None

    def partition(self) -> int:
        return 0


def test_what_comes_behind_a_message_that_is_not_understood_is_noted() -> None:
    topic, reached = Topic("nowhere", "changes"), {0: 3}
    end = Told(7, error=KafkaError(KafkaError._PARTITION_EOF))
    heard = topic._notice([Told(3, b"1"), Told(4, b"?"), Told(5, b"2"), end], reached)
    assert (heard, reached) == (EVERYTHING, {0: 7})
    assert topic._notice([Told(7, b"8")], reached) == Notice((8,))
    assert topic._notice([Told(8, b"null")], reached) == EVERYTHING


class Once(Feed):
    """Tells some keys, then that it still works."""

    def __init__(self, *keys: Any) -> None:
        self.keys, self.told = keys, threading.Event()

    def listen(self, clock: Any) -> Iterator[Notice]:
        yield Notice(by=clock())
        yield Notice(self.keys)
        self.told.set()
        while True:
            time.sleep(0.1)
            yield Notice(by=clock())


def test_only_blanks_that_fill_a_column_are_taken_away() -> None:
    changes, feed = Changes(), Once(["ab   ", "x "], {"text": "y", "code": " c "})
    keys = Keys.of(pa.schema([("code", pa.string()), ("text", pa.string())]), ["code", "text"])
    changes.listen(feed, keys, [True, False])
    assert feed.told.wait(60)
    codes = keys.encode([pa.array(["ab", " c"]), pa.array(["x ", "y"])]).values
    assert changes.since(changes.end - 1).tolist() == codes.tolist()


def test_signs_of_life_are_no_changes_and_few_lists_are_kept() -> None:
    changes = Changes()
    changes.add(np.empty(0, dtype=np.int64))
    assert changes.end == 0
    for number in range(1 << 16):
        changes.add(np.array([number]))
    assert changes.since(changes.end - 2).tolist() == [(1 << 16) - 2, (1 << 16) - 1]
    assert changes.since(0) is None


def test_mistakes_are_named() -> None:
    for address in ("kafka://topic", "http://a/b", "kafka://a:1/b/c"):
        with pytest.raises(OptionError, match="give kafka://host:port/topic"):
            Topic.at(address)
    with pytest.raises(OptionError, match="names no column"):
        trigger_sql("products", [])
    assert "secret" not in repr(Notifications(Address.parse("postgresql://me:secret@here/db")))


def test_tables_with_long_names_have_triggers_of_their_own() -> None:
    own = re.compile(r'CREATE (?:OR REPLACE FUNCTION|TRIGGER) (?:"sales".)?"(\S+)"')
    base = "größe_" * 9
    found = [own.findall(trigger_sql(f"sales.{base}{end}", "id")) for end in "ab"]
    assert len({*found[0], *found[1]}) == 6
    assert {len(name.encode()) <= 63 for names in found for name in names} == {True}
    assert found[0] == own.findall(trigger_sql(f"{base}a", "id"))  # however it is named
    assert own.findall(trigger_sql("products", "id"))[0] == "semistream_products_changed"


def test_time_passes_while_the_system_sleeps(monkeypatch) -> None:
    """A row may be no older than its ``ttl``, also after a laptop was opened again."""
    slept, clock_gettime = 3_600.0, time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda c: clock_gettime(c) + slept * (c == time.CLOCK_BOOTTIME)
    )
    for user in (ss.Join, Follower):
        clock = inspect.signature(user).parameters["clock"].default
        assert clock() - clock_gettime(time.CLOCK_MONOTONIC) > slept / 2
