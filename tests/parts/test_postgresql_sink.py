# ruff: noqa: N802, N815, S608 - the names of Java and of Spark; tables of the tests
"""The PostgreSQL sink behind a pooler: a batch is written once, or fails, if the server crashes.

The writer is as it is; psycopg plays java.sql behind a pooler in transaction mode, which gives a
client another of the server's connections at each transaction, and plays Spark's tasks.
"""

import os
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import psycopg
import pytest

from semistream.errors import StoreError
from semistream.pipeline.file.ends import PostgresqlSink
from semistream.pipeline.io import postgresql
from support import wait_for
from support.servers.databases import PostgreSQL

pytestmark = pytest.mark.xdist_group("databases")


class Pooled:
    """A java.sql.Connection, as far as it is used, with a server's connection per transaction."""

    def __init__(self, server):
        self._server, self._connection = server, None

    def createStatement(self):
        if self._connection is None:
            self._connection = psycopg.connect(self._server().url())
        cursor = self._connection.cursor()

        def update(sql):
            return max(0, cursor.execute(sql).rowcount)

        def query(sql):
            row = cursor.execute(sql).fetchone()
            return SimpleNamespace(next=lambda: row is not None, getObject=lambda i: row[i - 1])

        return SimpleNamespace(executeUpdate=update, executeQuery=query, close=cursor.close)

    def commit(self):
        if self._connection is not None:
            self._connection.commit()
        self.close()

    def close(self):
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Batch:
    sparkSession = None
    columns = ("id",)

    def __init__(self, ids):
        self.rows = list(zip(ids, range(len(ids)), strict=True))

    def withColumn(self, *_):
        return self

    def limit(self, _):
        return Batch([])


class Writer(postgresql.PostgresqlWriter):
    """Does something after the tasks have committed, before the driver goes on."""

    def __init__(self, server, table="facts"):
        super().__init__(PostgresqlSink(url=server.url(password=False), table=table), "query")
        self.server, self.after = server, lambda: None

    @contextmanager
    def _connection(self, _):
        pooled = Pooled(lambda: self.server)
        try:
            yield pooled
        finally:
            pooled.close()

    def _jdbc(self, rows, table):
        with psycopg.connect(self.server.url()) as connection, connection.cursor() as cursor:
            if not rows.rows:
                cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} (id bigint)")
                return
            insert = f"INSERT INTO {table} (id, semistream_row) VALUES (%s, %s)"
            cursor.executemany(insert, rows.rows)
        self.after()


@pytest.fixture(autouse=True)
def functions(monkeypatch):
    """No session is there to make a column of."""
    made = SimpleNamespace(monotonically_increasing_id=lambda: None)
    monkeypatch.setattr(postgresql, "sf", made)


@pytest.fixture(scope="module")
def one_server():
    made = PostgreSQL()
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def server(one_server):
    """A server that runs, with nothing in its database, whatever the test before did to it."""
    if not one_server.runs:
        one_server.start()
    one_server.execute(
        'DROP SCHEMA IF EXISTS "my ""own, schema" CASCADE',
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
    )
    return one_server


def written(server, table="facts"):
    return [row for (row,) in server.rows(f"SELECT id FROM {table} ORDER BY id")]


def leftovers(server):
    return server.rows("SELECT tablename FROM pg_tables WHERE tablename ~ '^semistream_[0-9a-f]'")


def kill_server(server):
    server.restart(kill=True)


def kill_one_backend(server):
    """End one backend, as for want of memory: the others are ended, and the server recovers."""
    with psycopg.connect(server.url()) as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            wait_for("the end", lambda: victim.execute("SELECT 1") is None)
    wait_for("PostgreSQL", server._healthy)


def test_a_clean_restart_of_the_server_loses_nothing(server):
    writer = Writer(server)
    writer.after = server.restart
    writer.write(Batch([1, 2, 3]), 0)
    assert written(server) == [1, 2, 3]
    assert not leftovers(server)


@pytest.mark.parametrize("crash", [kill_server, kill_one_backend])
def test_a_batch_whose_staging_a_crash_has_emptied_fails_and_is_written_when_replayed(
    server, crash
):
    writer = Writer(server)
    writer.write(Batch([1, 2, 3]), 0)
    writer.after = lambda: crash(server)
    with pytest.raises(StoreError, match="batch 1 was not written to 'facts'"):
        writer.write(Batch([4, 5, 6]), 1)
    assert written(server) == [1, 2, 3]
    assert server.rows("SELECT batch FROM semistream_ledger") == [(0,)]
    again = Writer(server)
    for _ in range(2):
        again.write(Batch([4, 5, 6]), 1)
    assert written(server) == [1, 2, 3, 4, 5, 6]
    assert not leftovers(server)


def test_rows_that_come_after_the_crash_do_not_make_a_batch_whole(server):
    writer = Writer(server)

    def crash_and_go_on():
        kill_server(server)
        writer.after = lambda: None
        (inbox,) = server.rows("SELECT viewname FROM pg_views WHERE viewname ~ '_inbox$'")
        writer._jdbc(Batch([7, 8]), *inbox)

    writer.after = crash_and_go_on
    with pytest.raises(StoreError):
        writer.write(Batch([4, 5, 6]), 0)
    assert written(server) == []


def test_a_batch_fails_when_a_standby_takes_over(server):
    standby = server.standby()
    try:
        writer = Writer(server)

        def fail_over():
            (reached,) = server.rows("SELECT pg_current_wal_lsn()::text")[0]
            replayed = f"SELECT pg_last_wal_replay_lsn() >= '{reached}'"
            wait_for("the standby", lambda: standby.rows(replayed) == [(True,)])
            server.kill()
            assert standby.rows("SELECT pg_promote()") == [(True,)]
            writer.server = standby

        writer.write(Batch([1]), 0)
        writer.after = fail_over
        with pytest.raises(StoreError, match="crashed or failed over"):
            writer.write(Batch([4, 5, 6]), 1)
        Writer(standby).write(Batch([4, 5, 6]), 1)
        assert written(standby) == [1, 4, 5, 6]
    finally:
        standby.remove()


def test_a_schema_with_a_blank_in_its_name_is_swept_after_a_crash(server):
    server.execute('CREATE SCHEMA "my ""own, schema"')
    table = 'my "own, schema.facts'
    writer = Writer(server, table)

    def end():
        raise KeyboardInterrupt

    writer.after = end
    with pytest.raises(KeyboardInterrupt):
        writer.write(Batch([1, 2]), 0)
    assert leftovers(server)
    Writer(server, table).write(Batch([1, 2]), 0)
    assert written(server, '"my ""own, schema".facts') == [1, 2]
    assert not leftovers(server)


def test_columns_of_domains_without_nulls_are_written(server):
    server.execute("CREATE DOMAIN known AS bigint NOT NULL", "CREATE TABLE facts (id known)")
    Writer(server).write(Batch([1, 2]), 0)
    assert written(server) == [1, 2]
