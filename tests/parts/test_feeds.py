"""Change feeds of PostgreSQL and Kafka: what changes is heard, also after a lost connection."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import semistream as ss
from semistream.master.database.address import Address
from semistream.master.database.feeds.feed import Follower, StopFollowing
from semistream.master.database.feeds.kafka import Topic
from semistream.master.database.feeds.postgresql import Notifications, trigger_sql
from support import wait_for
from support.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.master.database.feeds.feed import Feed
    from support.servers.databases import PostgreSQL
    from support.servers.kafka import Broker


KEY = pa.schema([("id", pa.int64())])


class Notes:
    """What a follower said: lists of keys, None where everything may have changed."""

    def __init__(self, feed: Feed, key: pa.Schema = KEY, clock: Any = None) -> None:
        self.heard: list[Any] = []
        self._ended = False
        more = {} if clock is None else {"clock": clock}
        self.follower = Follower(feed, key, self._note, **more)

    def _note(self, columns: Any) -> None:
        if self._ended:
            raise StopFollowing
        self.heard.append(columns and list(zip(*(c.to_pylist() for c in columns), strict=True)))

    @property
    def told(self) -> list[Any]:
        return [keys for keys in self.heard if keys != []]

    @property
    def keys(self) -> set[Any]:
        return {key for keys in self.heard for key in keys or ()}

    def __enter__(self) -> Self:
        self.follower.start()
        wait_for("the feed", lambda: self.follower.trusted)
        self.heard.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True


@pytest.fixture
def products(postgresql: PostgreSQL) -> Iterator[PostgreSQL]:
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "the name": ["a"] * 100})
    postgresql.load("Odd products", rows, key="id")
    postgresql.execute(trigger_sql("Odd products", "id", "changes"))
    yield postgresql
    postgresql.execute('DROP TABLE "Odd products"')


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_a_trigger_tells_the_keys_of_all_that_changes(products: PostgreSQL) -> None:
    with Notes(Notifications(Address.parse(products.url()), "changes")) as notes:
        products.execute(
            """UPDATE "Odd products" SET "the name" = 'b' WHERE id IN (3, 4)""",
            'UPDATE "Odd products" SET id = 1000 WHERE id = 5',
            """INSERT INTO "Odd products" VALUES (101, 'c')""",
            'DELETE FROM "Odd products" WHERE id = 6',
        )
        wait_for("six keys", lambda: len(notes.keys) == 6)
        assert notes.keys == {(3,), (4,), (5,), (1000,), (101,), (6,)}
        assert None not in notes.heard
        products.execute('TRUNCATE "Odd products"')
        wait_for("everything", lambda: None in notes.heard)


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_keys_of_several_columns_and_types(postgresql: PostgreSQL) -> None:
    postgresql.execute(
        "DROP TABLE IF EXISTS prices",
        "CREATE TABLE prices (shop text, day date, at timestamptz, size numeric(9, 2), raw bytea)",
        trigger_sql("public.prices", ["shop", "day", "at", "size", "raw"]),
    )
    kinds = [pa.string(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2), pa.binary()]
    key = pa.schema(list(zip("abcde", kinds, strict=True)))
    with Notes(Notifications(Address.parse(postgresql.url())), key) as notes:
        values = """'o"ne', '2024-02-29', '2024-02-29 01:02:03.000004+02', 1.50, '\\x00ff'"""
        postgresql.execute(f"INSERT INTO prices VALUES ({values})")  # noqa: S608
        wait_for("a key", lambda: bool(notes.keys))
        (found,) = notes.keys
        assert (found[0], str(found[1])) == ('o"ne', "2024-02-29")
        assert found[2].isoformat() == "2024-02-28T23:02:03.000004+00:00"
        assert (str(found[3]), found[4]) == ("1.50", b"\0\xff")
        long = "x" * 9000  # more than a notification holds: the write goes on
        postgresql.execute(f"INSERT INTO prices (shop) VALUES ('{long}')")  # noqa: S608
        wait_for("everything", lambda: None in notes.heard)


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_blanks_that_fill_a_key_do_not_count(postgresql: PostgreSQL) -> None:
    postgresql.execute(
        "DROP TABLE IF EXISTS padded",
        "CREATE TABLE padded (code char(6), shop char(3), PRIMARY KEY (code, shop))",
        trigger_sql("padded", ["code", "shop"], "blanks"),
    )
    key = ["code", "shop"]
    master = ss.open_master(postgresql.url(), table="padded", key=key, feed="notify:blanks")
    master.listen()
    wait_for("the feed", lambda: master.changes.trusted)
    start, wanted = master.changes.end, [pa.array(["ab"]), pa.array(["x"])]
    postgresql.execute("INSERT INTO padded VALUES ('ab', 'x')")
    wait_for("a key", lambda: master.changes.end > start)
    assert master.changes.since(start).tolist() == master.keys.encode(wanted).values.tolist()


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_what_is_not_understood_changes_everything(postgresql: PostgreSQL) -> None:
    with Notes(Notifications(Address.parse(postgresql.url()), "odd")) as notes:
        for payload in ("", "{", '"a"', "[1, 2]", '{"no": 1}', "1.5"):
            notes.heard.clear()
            postgresql.execute(f"NOTIFY odd, '{payload}'")
            wait_for(payload, lambda: bool(notes.told))
            assert notes.told == [None], payload
        assert notes.follower.trusted


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_a_lost_connection_drops_everything_until_it_is_back(products: PostgreSQL) -> None:
    with (
        Proxy(products.port) as proxy,
        Notes(Notifications(Address.parse(products.url(proxy.port)), "changes")) as notes,
    ):
        proxy.refuse()
        wait_for("the loss", lambda: not notes.follower.trusted)
        assert notes.heard[0] is None
        notes.heard.clear()
        products.execute('DELETE FROM "Odd products" WHERE id = 7')
        proxy.accept()
        wait_for("the feed", lambda: notes.follower.trusted)
        assert None in notes.heard
        assert not notes.keys
        products.execute('DELETE FROM "Odd products" WHERE id = 8')
        wait_for("a key", lambda: notes.keys == {(8,)})


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_a_silent_connection_is_not_trusted_for_long(products: PostgreSQL) -> None:
    later = threading.Event()

    with Proxy(products.port) as proxy:
        clock = lambda: time.monotonic() + (100 if later.is_set() else 0)  # noqa: E731
        feed = Notifications(Address.parse(products.url(proxy.port)), "changes")
        with Notes(feed, clock=clock) as notes:
            proxy.silent = True
            time.sleep(0.1)
            products.execute('DELETE FROM "Odd products" WHERE id = 9')
            later.set()
            assert not notes.follower.trusted
            proxy.silent = False
            wait_for("the feed", lambda: notes.follower.trusted)
            assert notes.keys == {(9,)}


@pytest.mark.parts
@pytest.mark.xdist_group("tables")  # where the broker runs
def test_a_topic_tells_keys_of_any_form_and_outlives_its_broker(broker: Broker) -> None:
    broker.create("product-changes", partitions=2)
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    producer.produce("product-changes", value=b"1")
    producer.flush()
    with Notes(Topic.at(f"kafka://{broker.address}/product-changes")) as notes:
        wrapped = json.dumps({"schema": {}, "payload": {"id": 4}})
        for key, value in ((None, "2"), ("[3]", "x"), (wrapped, None), ('{"id": 5}', "{}")):
            producer.produce("product-changes", key=key, value=value)
        producer.flush()
        wait_for("four keys", lambda: len(notes.keys) == 4)
        assert notes.keys == {(2,), (3,), (4,), (5,)}
        assert None not in notes.heard
        producer.produce("product-changes", value=b"?")
        producer.flush()
        wait_for("everything", lambda: None in notes.heard)
        notes.heard.clear()
        broker.kill()
        wait_for("the loss", lambda: not notes.follower.trusted)
        assert None in notes.heard
        broker.start()
        wait_for("the feed", lambda: notes.follower.trusted)
        producer.produce("product-changes", value=b"6")
        producer.flush()
        wait_for("a key", lambda: (6,) in notes.keys)
