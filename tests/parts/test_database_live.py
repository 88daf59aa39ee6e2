# ruff: noqa: S106, S301, S608 - tests: no secrets, no strangers
"""A table in a database lives: what is held grows old, what fails is tried again, nothing leaks."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import threading
import time
import traceback
from collections import Counter
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import psycopg
import pyarrow as pa
import pymysql
import pytest

import semistream as ss
from semistream.errors import (
    MasterNotFoundError,
    OptionError,
    RowTooLargeError,
    SchemaError,
    StoreError,
)
from semistream.hotset import HostShare
from semistream.master.database.address import Address, Secret
from semistream.master.database.dialect import Statement
from semistream.master.database.store import POOL, Retry
from semistream.spark.lookup.database import for_workers, shared_master
from support import wait_for
from support.live import open_table
from support.servers.databases import PASSWORD

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("databases")]


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def products(server):
    """A table of 100 products, those with even numbers."""
    rows = np.arange(0, 200, 2)
    table = pa.table({"id": rows, "name": [f"product {i}" for i in rows], "stock": rows % 7})
    server.load("products", table, "id")
    return server


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def joined(join, *ids):
    """Give the names of these products, in order of their ids."""
    batch = pa.record_batch({"id": pa.array(ids, pa.int64())})
    out = [*join.offer(batch), *join.drain()]
    rows = [row for batch in out for row in batch.to_pylist()]
    return [row["name"] for row in sorted(rows, key=lambda row: row["id"])]


def start(master, **options):
    schema = pa.schema([("id", pa.int64())])
    options = {"memory": "1MB", "select": ["name"], **options}
    return ss.Join(master, schema, on="id", how="left", **options)


def test_rows_hold_as_long_as_ttl_after_they_were_fetched(products):
    clock = Clock()
    join = start(open_table(products, "products", "id", ttl="10m", absent_ttl="30s"), clock=clock)
    assert joined(join, 4, 5) == ["product 4", None]
    products.execute("UPDATE products SET name = 'new' WHERE id = 4")
    products.execute("INSERT INTO products (id, name, stock) VALUES (5, 'five', 1)")
    clock.now += 29
    assert joined(join, 4, 5) == ["product 4", None]
    clock.now += 1
    assert joined(join, 4, 5) == ["product 4", "five"]
    clock.now += 569  # they were asked for again and again: that does not make them younger
    assert joined(join, 4) == ["product 4"]
    clock.now += 1
    assert joined(join, 4) == ["new"]
    products.execute("DELETE FROM products WHERE id = 4")
    clock.now += 600
    assert joined(join, 4) == [None]


def test_without_ttl_rows_hold_as_long_as_the_join(products):
    clock, master = Clock(), open_table(products, "products", "id")
    join = start(master, clock=clock)
    assert joined(join, 4, 5) == ["product 4", None]
    products.execute("UPDATE products SET name = 'new' WHERE id = 4")
    clock.now += 10**6
    assert joined(join, 4, 5) == ["product 4", None]
    assert join.metrics.queries == 1
    assert joined(start(master), 4) == ["new"]


def test_keys_that_changed_are_asked_for_anew(products):
    master = open_table(products, "products", "id")
    join = start(master)
    assert joined(join, 2, 4, 5) == ["product 2", "product 4", None]
    products.execute("UPDATE products SET name = 'new'")
    products.execute("INSERT INTO products (id, name, stock) VALUES (5, 'five', 1)")
    master.invalidate([4, 5])
    assert joined(join, 2, 4, 5) == ["product 2", "new", "five"]
    master.invalidate(None)
    assert joined(join, 2) == ["new"]
    master.invalidate(pa.array([2], pa.int32()))
    assert joined(join, 2) == ["new"]
    assert join.metrics.queries == 4


def test_what_changes_while_it_is_fetched_is_not_held(products):
    master = open_table(products, "products", "id")
    join = start(master)
    batch = pa.record_batch({"id": pa.array([4], pa.int64())})
    list(join.offer(batch))
    results = join.drain()
    engine, fetch = join._running, type(master).fetch

    def changed(*arguments):
        yield from fetch(*arguments)
        master.invalidate([4])

    object.__setattr__(engine._table, "fetch", lambda *a: changed(engine._table, *a))
    assert [b["name"][0].as_py() for b in results] == ["product 4"]
    products.execute("UPDATE products SET name = 'new' WHERE id = 4")
    assert joined(join, 4) == ["new"]


def test_only_columns_and_rows_that_are_wanted_travel(products):
    master = open_table(
        products, "products", "id", select=["name"], where=[("stock", "in", [0, 1, 2])]
    )
    assert master.schema.names == ["id", "name"]
    join = start(master)
    assert joined(join, 14, 16, 18) == ["product 14", "product 16", None]
    more = [("name", "!=", "product 14"), ("stock", "is not null"), ("stock", "<", 2)]
    assert joined(start(open_table(products, "products", "id", where=more)), 14, 16, 28) == [
        None,
        None,
        "product 28",
    ]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"table": "nothing"}, MasterNotFoundError, "no such table"),
        ({"key": "idd"}, SchemaError, "Did you mean 'id'"),
        ({"select": ["nam"]}, SchemaError, "Did you mean 'name'"),
        ({"where": "stock > 1"}, OptionError, "give tuples"),
        ({"where": [("stock", "~", 1)]}, OptionError, "choose one of"),
        ({"where": [("stock", "=")]}, OptionError, "have no value"),
        ({"where": [("stock", "=", None)]}, OptionError, "'is null'"),
        ({"where": [("stock", "not in", [1, None])]}, OptionError, "'is not null'"),
        ({"where": [("stock", "in", [])]}, OptionError, "leave the condition out"),
        ({"where": [("name", "in", "AT")]}, OptionError, "needs a list"),
        ({"ttl": "soon"}, OptionError, "is not a time"),
        ({"read": "mapped"}, OptionError, "is for files"),
    ],
)
def test_mistakes_are_named(products, options, error, message):
    with pytest.raises(error, match=message):
        ss.open_master(products.url(), **{"table": "products", "key": "id", **options})


def test_names_are_quoted(server):
    name = 'odd"%s`; DROP TABLE products --'
    quoted = name.replace('"', '""') if server.scheme == "postgresql" else name.replace("`", "``")
    mark = '"' if server.scheme == "postgresql" else "`"
    table = f"{mark}{quoted}{mark}"
    server.execute(
        f"DROP TABLE IF EXISTS {table}",
        f"CREATE TABLE {table} ({table} bigint PRIMARY KEY, name text)",
    )
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table.replace('%', '%%')} VALUES (%s, %s)", (7, "seven"))
    master = ss.open_master(server.url(), table=[name], key=name, where=[("name", "!=", "%s'")])
    batch = pa.record_batch({"id": [7]})
    join = ss.Join(master, batch.schema, on={"id": name}, memory="1MB")
    assert [b["name"][0].as_py() for b in [*join.offer(batch), *join.drain()]] == ["seven"]


def test_a_server_that_starts_again_is_waited_for(products):
    join = start(open_table(products, "products", "id", retry="60s"))
    assert joined(join, 4) == ["product 4"]
    products.stop()
    starter = threading.Thread(target=lambda: (time.sleep(0.5), products.start()))
    starter.start()
    try:
        assert joined(join, 4, 6, 7) == ["product 4", "product 6", None]
    finally:
        starter.join()
    assert join.metrics.queries > 2


def test_a_server_that_is_gone_is_an_error_and_no_miss(products):
    pauses = []
    now = iter(np.arange(0, 1000, 0.5).tolist())
    retry = Retry(limit=3, sleep=pauses.append, chance=lambda: 1.0, clock=lambda: next(now))
    join = start(open_table(products, "products", "id", retry=retry))
    assert joined(join, 4) == ["product 4"]
    products.stop()
    try:
        with pytest.raises(StoreError, match="No row was taken for absent") as failed:
            joined(join, 6)
    finally:
        products.start()
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert "products" in str(failed.value)
    assert "127.0.0.1" in str(failed.value)
    assert failed.value.__cause__ is not None


def test_connections_that_were_cut_are_made_anew(products):
    join = start(open_table(products, "products", "id"))
    assert joined(join, 4) == ["product 4"]
    if products.scheme == "postgresql":
        products.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'semistream'"
        )
    else:
        for (number,) in products.rows(
            "SELECT id FROM information_schema.processlist WHERE command = 'Sleep'"
        ):
            products.execute(f"KILL {number}")
    assert joined(join, 6) == ["product 6"]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE products DROP COLUMN name",
        "DROP TABLE products",
        "ALTER TABLE products RENAME COLUMN id TO number",
    ],
)
def test_a_table_that_was_altered_fails_at_once(products, change):
    pauses = []
    retry = Retry(sleep=pauses.append)
    join = start(open_table(products, "products", "id", retry=retry))
    assert joined(join, 4) == ["product 4"]
    products.execute(change)
    with pytest.raises(StoreError, match="products: the database refuses"):
        joined(join, 6)
    assert not pauses


def test_a_column_of_another_type_is_converted_or_refused(products):
    join = start(open_table(products, "products", "id"), select=["stock", "name"])
    kind = "TYPE text" if products.scheme == "postgresql" else "stock text"
    verb = "ALTER COLUMN stock" if products.scheme == "postgresql" else "MODIFY COLUMN"
    products.execute(f"ALTER TABLE products {verb} {kind}")
    assert joined(join, 4) == ["product 4"]
    products.execute("UPDATE products SET stock = 'many' WHERE id = 6")
    with pytest.raises(StoreError, match="products"):
        joined(join, 6)


def test_nobody_without_rights_reads(products):
    if products.scheme == "postgresql":
        products.execute("DROP ROLE IF EXISTS stranger", "CREATE ROLE stranger LOGIN PASSWORD 'x'")
    else:
        products.execute("CREATE OR REPLACE USER stranger@'%' IDENTIFIED BY 'x'")
    head, tail = products.url().split("//")
    url = f"{head}//stranger:x@{tail.rpartition('@')[2]}"
    with pytest.raises((StoreError, MasterNotFoundError), match=r"denied|may not see"):
        ss.open_master(url, table="products", key="id")
    wrong = url.replace(":x@", ":yyy@")
    with pytest.raises(StoreError, match="refuses") as failed:
        ss.open_master(wrong, table="products", key="id")
    assert "yyy" not in str(failed.value)


def test_the_password_shows_nowhere(products, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    master = open_table(products, "products", "id", retry="100ms")
    join = start(master)
    joined(join, 4)
    products.stop()
    try:
        with pytest.raises(StoreError) as failed:
            joined(join, 6)
    finally:
        products.start()
    shown = [repr(master), master.describe(), str(join.plan), repr(join.plan), caplog.text]
    error = failed.value
    shown += [str(error), repr(error), repr(error.__cause__), str(error.__cause__)]
    shown += [repr(vars(master)), repr(master.store), master.identity]
    for text in shown:
        assert PASSWORD not in text
        assert quote(PASSWORD, safe="") not in text
    assert joined(start(pickle.loads(pickle.dumps(master))), 4) == ["product 4"]
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    url = products.url(password=False)
    named = ss.open_master(url, table="products", key="id", password_env="SHOP_PASSWORD")
    assert PASSWORD.encode() not in pickle.dumps(named)
    assert joined(start(named), 4) == ["product 4"]
    monkeypatch.delenv("SHOP_PASSWORD")
    POOL.close_idle(0)
    with pytest.raises(OptionError, match="on the driver"):
        ss.open_master(url, table="products", key="id", password_env="SHOP_PASSWORD")


def test_a_forked_process_has_its_own_connections(products):
    master = open_table(products, "products", "id")
    join = start(master)
    assert joined(join, 4) == ["product 4"]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=lambda: answers.put((joined(start(master), 6), len(POOL))))
    child.start()
    assert answers.get(timeout=60) == (["product 6"], 1)
    child.join()
    assert joined(join, 8) == ["product 8"]
    assert join.metrics.queries == 2


def test_connections_that_rest_are_few_and_closed(products):
    masters = [open_table(products, "products", "id") for _ in range(4)]
    for join in [start(master) for master in masters]:
        joined(join, 4)
    assert 1 <= len(POOL) <= 4  # two an address
    POOL.close_idle(0)
    assert not len(POOL)


def test_a_row_wider_than_the_budget_is_refused(server):
    kind = "text" if server.scheme == "postgresql" else "longtext"
    server.execute("DROP TABLE IF EXISTS wide", f"CREATE TABLE wide (id bigint, name {kind})")
    server.execute("INSERT INTO wide VALUES (1, 'short')")
    join = start(open_table(server, "wide", "id"), memory="64KB")
    server.execute(f"INSERT INTO wide VALUES (2, '{'x' * 60_000}')")
    assert joined(join, 1) == ["short"]
    with pytest.raises(RowTooLargeError, match="leave the widest"):
        joined(join, 2)


def test_postgresql_in_its_own_ways(postgresql, monkeypatch):
    postgresql.execute(
        "DROP TABLE IF EXISTS odd", "DROP TYPE IF EXISTS mood", "DROP DOMAIN IF EXISTS cents",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE DOMAIN cents AS numeric(12, 2)",
        "CREATE TABLE odd (id uuid PRIMARY KEY, code char(6), feels mood, price cents, "
        "free numeric, valid_to timestamptz, day date, extra jsonb, tags text[])",
        "INSERT INTO odd VALUES ('6f1f7c1e-0000-4000-8000-00000000000a', 'ab', 'happy', 1.5, "
        "3.14159, 'infinity', '-infinity', '{\"a\": 1}', '{x,y}')",
    )  # fmt: skip
    master = open_table(postgresql, "odd", "id")
    ids = ["6f1f7c1e-0000-4000-8000-00000000000a", "no uuid", "a\0b"]
    batch = pa.record_batch({"id": ids})
    join = ss.Join(master, batch.schema, on="id", memory="1MB")
    (row,) = [r for b in [*join.offer(batch), *join.drain()] for r in b.to_pylist()]
    assert (row["code"], row["feels"], str(row["price"]), row["free"]) == (
        "ab", "happy", "1.50", "3.14159",
    )  # fmt: skip
    assert (row["valid_to"].year, row["day"].year, row["tags"]) == (9999, 1, "{x,y}")
    by_code = open_table(postgresql, "odd", "code")
    batch = pa.record_batch({"code": ["ab", "ab ", "zz"]})
    join = ss.Join(by_code, batch.schema, on="code", how="semi", memory="1MB")
    out = [*join.offer(batch), *join.drain()]
    assert [code for b in out for code in b["code"].to_pylist()] == ["ab"]
    with pytest.raises(SchemaError, match="cast it in a view"):
        open_table(postgresql, "odd", "feels")
    by_number = open_table(postgresql, "odd", "free")
    batch = pa.record_batch({"free": ["n/a", "", "3.14159", "3.141590", "1e9", "9" * 200_000]})
    join = ss.Join(by_number, batch.schema, on="free", how="semi", memory="8MB")
    out = [*join.offer(batch), *join.drain()]
    assert [free for b in out for free in b["free"].to_pylist()] == ["3.14159"]
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert ss.open_master(postgresql.url(password=False), table="odd", key="id").rows == 1


def test_masters_that_differ_in_options_alone_share_nothing(postgresql):
    masters = []
    for tenant in ("one", "two"):
        postgresql.execute(
            f"DROP SCHEMA IF EXISTS {tenant} CASCADE", f"CREATE SCHEMA {tenant}",
            f"CREATE TABLE {tenant}.wares (id bigint PRIMARY KEY, name text)",
            f"INSERT INTO {tenant}.wares VALUES (4, '{tenant}')",
        )  # fmt: skip
        url = f"{postgresql.url()}?options=-csearch_path%3D{tenant}"
        masters.append(for_workers(ss.open_master(url, table="wares", key="id", ttl=60)))
    one, two = map(shared_master, masters)
    assert [joined(start(master), 4) for master in (one, two)] == [["one"], ["two"]]
    assert shared_master(pickle.loads(pickle.dumps(one))) is one  # as each task does
    assert one.identity != two.identity
    assert "search_path" not in one.identity
    store = replace(one.store, address=replace(one.store.address, password=Secret("new")))
    renewed = replace(one, store=store)
    assert shared_master(renewed) is renewed
    assert renewed.identity == one.identity


def test_a_feed_needs_no_password_in_the_environment_of_workers(postgresql, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    postgresql.load("products", pa.table({"id": [1]}), "id")
    url, options = postgresql.url(password=False), {"password_env": "SHOP_PASSWORD"}
    master = ss.open_master(url, table="products", key="id", feed="notify", **options)
    master = pickle.loads(pickle.dumps(for_workers(master)))
    monkeypatch.delenv("SHOP_PASSWORD")
    master.listen()
    wait_for("the feed", lambda: master.changes.trusted)
    assert PASSWORD not in master.identity


def test_mariadb_in_its_own_ways(mariadb):
    mariadb.execute(
        "DROP TABLE IF EXISTS odd",
        "CREATE TABLE odd (id varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci "
        "PRIMARY KEY, big bigint unsigned, flag bit(3), y year, day date, "
        "feels enum('sad','happy'), price decimal(40,2), ratio float)",
        "SET SESSION sql_mode=''",
    )
    mariadb.execute(
        "INSERT INTO odd VALUES ('Ab', 18446744073709551615, b'101', 2024, '2024-02-29', 'happy', "
        "1.5, 0.1)",
    )
    master = open_table(mariadb, "odd", "id")
    batch = pa.record_batch({"id": ["Ab", "ab", "AB", "Ab ", "Ab"]})
    join = ss.Join(master, batch.schema, on="id", memory="1MB")
    rows = [r for b in [*join.offer(batch), *join.drain()] for r in b.to_pylist()]
    assert len(rows) == 2  # equal by the database's rules is not equal
    assert rows[0]["big"] == 2**64 - 1
    assert (rows[0]["flag"], rows[0]["y"], str(rows[0]["price"])) == (5, 2024, "1.50")
    assert rows[0]["ratio"] == np.float32(0.1)
    by_number = open_table(mariadb, "odd", "big")
    batch = pa.record_batch({"big": pa.array([2**64 - 1, 7], pa.uint64())})
    join = ss.Join(by_number, batch.schema, on="big", memory="1MB", select=["id"])
    assert [b["id"][0].as_py() for b in [*join.offer(batch), *join.drain()]] == ["Ab"]
    mariadb.execute(
        "DROP TABLE IF EXISTS prefixed",
        "CREATE TABLE prefixed (id int, name varchar(20), UNIQUE (id, name(3)))",
        "INSERT INTO prefixed VALUES (1, 'ann'), (1, 'bob')",
    )
    assert open_table(mariadb, "prefixed", "id").statistics.most_duplicates > 1


def test_no_row_waits_longer_than_max_wait(products):
    clock, master = Clock(), open_table(products, "products", "id")
    join = start(master, clock=clock, max_wait=5)
    batch = pa.record_batch({"id": pa.array([4, 5], pa.int64())})
    assert not list(join.offer(batch))
    clock.now += 4
    assert not list(join.tick())
    assert join.waiting == 2
    clock.now += 1
    assert sum(out.num_rows for out in join.tick()) == 2
    assert join.metrics.queries == 1


def test_an_answer_that_is_cut_in_the_middle_goes_on_where_it_was(server, monkeypatch):
    """Many pieces an answer, some cut after a few rows: none is lost, none doubled."""
    ids = np.repeat(np.arange(0, 80, 2), 12)
    names = [f"{i} {n}" for n, i in enumerate(ids)]
    server.load("several", pa.table({"id": ids, "name": names}))
    master = open_table(server, "several", "id", retry=Retry(sleep=lambda _: None))
    dialect, lost, cuts = type(master.store.dialect), cut_off(server.scheme), []
    messages = dialect.messages

    def cut(self, connection, statement):
        for number, message in enumerate(messages(self, connection, statement)):
            if number == 37 and len(cuts) < 4:
                cuts.append(number)
                raise lost
            yield message

    monkeypatch.setattr(dialect, "messages", cut)
    join = start(master, memory="40KB")
    assert Counter(joined(join, *range(80))) == Counter([*names, *[None] * 40])
    assert len(cuts) == 4


def test_a_request_with_long_keys_stays_within_its_part(postgresql):
    words = [f"{i} {'x' * 1000}" for i in range(400)]
    postgresql.load("words", pa.table({"id": words[::2], "name": words[::2]}))
    batch = pa.record_batch({"id": words})
    join = ss.Join(open_table(postgresql, "words", "id"), batch.schema, on="id", memory="1500KB")
    part = join.plan.components["fetch"] // 4
    out = [*join.offer(batch), *join.drain()]
    assert sorted(n for b in out for n in b["name"].to_pylist()) == sorted(words[::2])
    assert join.metrics.queries >= sum(map(len, words)) * 6 // part


def test_a_view_that_nobody_counted_may_be_large(server, tmp_path):
    server.load("viewed", pa.table({"id": np.arange(3000)}), "id")
    server.execute("CREATE OR REPLACE VIEW large_view AS SELECT id, id AS name FROM viewed")
    server.execute(
        "CREATE OR REPLACE VIEW small_view AS SELECT id, id AS name FROM viewed WHERE id < 9"
    )
    hot = []
    for view in ("large_view", "small_view"):
        master = open_table(server, view, "id")
        join = start(master, memory="8MB", shared=HostShare(tmp_path, tasks=1))
        hot.append(sum(join.plan.host.values()))
        assert ("rows     at least 1,000" in master.describe()) == (view == "large_view")
    assert hot[0] > 5 * hot[1]


def test_the_last_moment_is_asked_for(server):
    moments = ["9999-12-31 00:00:00", "9999-12-31 23:59:58"]
    kind = "timestamp" if server.scheme == "postgresql" else "datetime(6)"
    server.execute("DROP TABLE IF EXISTS ends", f"CREATE TABLE ends (at {kind} PRIMARY KEY)")
    server.execute(f"INSERT INTO ends VALUES ('{moments[0]}'), ('{moments[1]}')")
    keys = pa.array([*moments, "9999-12-31 23:59:59"]).cast(pa.timestamp("us"))
    batch = pa.record_batch({"at": keys})
    join = ss.Join(open_table(server, "ends", "at"), batch.schema, on="at", how="semi")
    out = [*join.offer(batch), *join.drain()]
    assert sorted(str(at) for b in out for at in b["at"].to_pylist()) == moments


def test_zero_dates_of_mysql_are_no_keys(mariadb):
    mariadb.execute("DROP TABLE IF EXISTS days", "CREATE TABLE days (day date, name varchar(9))")
    zero = ", ".join(["('0000-00-00', 'zero')"] * 30)
    rest = ", ".join(f"('{1968 + i}-05-01', '{i}')" for i in range(9))
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute(f"INSERT INTO days VALUES {zero}, {rest}")
        connection.commit()
    master = open_table(mariadb, "days", "day")
    days = ["1968-05-01", "1970-01-01", "1976-05-01"]
    batch = pa.record_batch({"day": pa.array(days).cast(pa.date32())})
    join = ss.Join(master, batch.schema, on="day", memory="1MB")
    out = [*join.offer(batch), *join.drain()]
    assert sorted(name for b in out for name in b["name"].to_pylist()) == ["0", "8"]


def test_an_answer_that_nobody_reads_is_left(mariadb):
    mariadb.load("products", pa.table({"id": np.arange(9)}), "id")
    store = open_table(mariadb, "products", "id").store
    with store.dialect.connect(store.address) as connection:
        answer = store.dialect.messages(connection, Statement("SELECT id FROM products"))
        next(answer)
        result = answer.gi_frame.f_locals["result"]
        answer.close()
        assert not result.unbuffered_active


def test_addresses_keep_letters_and_escapes():
    query = Address.parse("postgresql://me@/shop?password=100%2525&host=/tmp")
    assert (query.host, query.password.reveal()) == ("", "100%25")
    socket = Address.parse("postgresql://me:a%2540@%2Frun%2FPostgres/shop")
    assert (socket.host, socket.password.reveal()) == ("/run/Postgres", "a%40")
    six = Address.parse("mysql://me@[::1]:3307/shop")
    assert (six.host, six.port) == ("::1", 3307)


def test_an_answer_of_which_a_part_was_used_is_not_asked_for_again(postgresql, monkeypatch):
    postgresql.load("products", pa.table({"id": np.arange(9)}), "id")
    master = open_table(postgresql, "products", "id")
    dialect = type(master.store.dialect)
    messages = dialect.messages

    def cut(self, connection, statement):
        yield next(messages(self, connection, statement))
        raise psycopg.OperationalError(f"no connection with {PASSWORD}")

    monkeypatch.setattr(dialect, "messages", cut)
    statement = master.store.dialect.sample(master.table, 9)
    with pytest.raises(StoreError, match=r"so it was not asked for again: .*\*\*\*") as failed:
        list(master.store.rows(statement, master.table.columns, 1))
    assert failed.value.__cause__ is None
    assert PASSWORD not in "".join(traceback.format_exception(failed.value))


def cut_off(scheme):
    if scheme == "postgresql":
        return psycopg.OperationalError("server closed the connection unexpectedly")
    return pymysql.err.OperationalError(2013, "Lost connection to server during query")
