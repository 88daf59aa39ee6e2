# ruff: noqa: S608 - names are quoted, values escaped here
"""Micro-batches into a table of PostgreSQL's, each exactly once.

Spark's tasks write a batch in parallel, by JDBC, to a staging table. Then one transaction moves it
to the table and notes its number in a ledger: a batch that is replayed after a crash is found
there and not written again. A task's second attempt adds nothing to the staging table, for rows
are numbered by partition and position, and a partition is committed as a whole.

The staging table is unlogged: PostgreSQL empties it when it recovers from a crash, and on a standby
that is promoted. Behind a pooler the driver's connection outlives both. So a row lies in a second
unlogged table, which is emptied with the first; without that row the batch fails, and is replayed.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql import functions as sf

from semistream.errors import StoreError
from semistream.missing import STAGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from semistream.pipeline.file.ends import PostgresqlSink

__all__ = ["PostgresqlWriter"]

_DRIVER = "org.postgresql.Driver"


class _Staging(NamedTuple):
    """The tables of one batch, by their quoted names."""

    rows: str
    inbox: str
    """A view of the rows, into which a row with a known number is not put."""
    mark: str
    """Has a row as long as no crash of the server has emptied the tables."""


class PostgresqlWriter:
    """Writes the batches of one query to one table.

    The ledger knows ``query`` by this id: the same over restarts, another for another checkpoint.
    """

    def __init__(self, sink: PostgresqlSink, query: str) -> None:
        self._sink, self._query = sink, query
        self._url = f"jdbc:{sink.url.removeprefix('jdbc:')}"
        *self._schema, _ = sink.table.split(".")
        self._table, self._ledger = _quoted(sink.table.split(".")), _quoted(sink.ledger.split("."))
        short = hashlib.sha256(f"{query} {sink.table}".encode()).hexdigest()[:12]
        self._prefix = f"semistream_{short}_"

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch, unless it was written before."""
        with self._connection(batch.sparkSession) as connection:
            self._make_tables(connection, batch)
            query = f"SELECT batch FROM {self._ledger} WHERE query = '{_literal(self._query)}'"
            last = _value(connection, query)
            if last is not None and int(last) >= number:
                return
            staging = self._make_staging(connection, batch.columns)
            self._jdbc(batch.withColumn(STAGED, sf.monotonically_increasing_id()), staging.inbox)
            self._move(connection, staging, batch.columns, number)

    def _make_tables(self, connection: Any, batch: DataFrame) -> None:  # noqa: ANN401 - java.sql's
        _run(
            connection,
            f"CREATE TABLE IF NOT EXISTS {self._ledger} (query text PRIMARY KEY, "
            "batch bigint NOT NULL, written timestamptz NOT NULL DEFAULT now())",
        )
        connection.commit()
        if _value(connection, f"SELECT to_regclass('{_literal(self._table)}')::text") is None:
            self._jdbc(batch.limit(0), self._table)

    def _make_staging(self, connection: Any, names: Sequence[str]) -> _Staging:  # noqa: ANN401
        """Make the tables for a batch.

        Their names are new each time: a task of a driver that died may still be writing to others.
        """
        token = self._prefix + uuid4().hex[:8]
        staging = _Staging(
            *(_quoted([*self._schema, f"{token}_{what}"]) for what in _Staging._fields)
        )
        # The tables of batches that were cut off.
        old = _value(
            connection,
            "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables "
            f"WHERE starts_with(tablename, '{self._prefix}')",
        )
        if old:
            _run(connection, f"DROP TABLE IF EXISTS {old} CASCADE")
        _run(
            connection,
            f"CREATE UNLOGGED TABLE {staging.rows} AS SELECT {_listed(names)}, 0::bigint AS "
            f"{STAGED} FROM {self._table} WHERE false",
            f"ALTER TABLE {staging.rows} ADD PRIMARY KEY ({STAGED})",
            f"CREATE VIEW {staging.inbox} AS SELECT * FROM {staging.rows}",
            f"CREATE RULE once AS ON INSERT TO {staging.inbox} DO INSTEAD "
            f"INSERT INTO {staging.rows} VALUES (NEW.*) ON CONFLICT DO NOTHING",
            f"CREATE UNLOGGED TABLE {staging.mark} AS SELECT true AS whole",
        )
        connection.commit()
        return staging

    def _move(
        self,
        connection: Any,  # noqa: ANN401 - java.sql's
        staging: _Staging,
        names: Sequence[str],
        number: int,
    ) -> None:
        # The ledger's row comes first: it locks out another driver with the same batch.
        noted = _run(
            connection,
            f"INSERT INTO {self._ledger} AS ledger (query, batch) "
            f"VALUES ('{_literal(self._query)}', {number}) ON CONFLICT (query) DO UPDATE "
            "SET batch = excluded.batch, written = now() WHERE ledger.batch < excluded.batch",
        )
        if noted:
            if _value(connection, f"SELECT count(*)::int FROM {staging.mark}") != 1:
                msg = (
                    f"batch {number} was not written to {self._sink.table!r}: PostgreSQL crashed "
                    "or failed over meanwhile, and has lost its staging table's rows; start the "
                    "pipeline again, which writes the batch anew"
                )
                raise StoreError(msg)
            columns = _listed(names)
            _run(
                connection,
                f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {staging.rows}",
            )
        _run(connection, f"DROP TABLE {staging.rows}, {staging.mark} CASCADE")
        connection.commit()

    def _jdbc(self, rows: DataFrame, table: str) -> None:
        options = {name: str(value) for name, value in self._sink.options.items()}
        options |= {"url": self._url, "dbtable": table, "driver": _DRIVER, **self._login}
        # Strings go as text of unknown type, so that the server takes them for its own types too.
        options = {"stringtype": "unspecified", "reWriteBatchedInserts": "true", **options}
        rows.write.format("jdbc").options(**options).mode("append").save()

    @property
    def _login(self) -> dict[str, str]:
        login = {"user": self._sink.user, "password": self._sink.password}
        return {name: value for name, value in login.items() if value is not None}

    @contextmanager
    def _connection(self, spark: SparkSession) -> Iterator[Any]:
        """Open a connection from the driver, by the JDBC driver that the tasks use."""
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        properties = jvm.java.util.Properties()
        for name, value in self._login.items():
            properties.setProperty(name, value)
        connection = jvm.org.postgresql.Driver().connect(self._url, properties)
        try:
            connection.setAutoCommit(False)
            yield connection
        finally:
            connection.close()


def _quoted(parts: Sequence[str]) -> str:
    """Return a name as SQL has it.

    Examples
    --------
    >>> print(_quoted(["public", 'a"b']))
    "public"."a""b"
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_quoted([name]) for name in names)


def _literal(text: str) -> str:
    return text.replace("'", "''")


def _run(connection: Any, *statements: str) -> int:  # noqa: ANN401 - java.sql's
    """Execute statements; return how many rows the last one changed."""
    statement, changed = connection.createStatement(), 0
    try:
        for each in statements:
            changed = statement.executeUpdate(each)
    finally:
        statement.close()
    return int(changed)


def _value(connection: Any, query: str) -> Any:  # noqa: ANN401 - java.sql's
    """Return the first value of the first row, or None."""
    statement = connection.createStatement()
    try:
        rows = statement.executeQuery(query)
        return rows.getObject(1) if rows.next() else None
    finally:
        statement.close()
