"""A database under measurement: its table, how others reach it, what it was asked."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from tempfile import NamedTemporaryFile
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.csv as pc

from benchmarks.spark.data import KEY, Products
from semistream.errors import OptionError
from semistream.spark.cluster.maven import Artifact

JARS = (
    Artifact("org.postgresql", "postgresql", "42.7.14"),
    Artifact("org.mariadb.jdbc", "mariadb-java-client", "3.5.6"),
)
"""The drivers of Spark's own way to databases."""
_TYPES = {"int64": "bigint", "int32": "integer", "double": "double precision", "string": "text"}


@dataclass(frozen=True)
class Store:
    """A table of products in a server; the address is never shown."""

    url: str = field(repr=False)
    table: str

    kind: ClassVar[str]
    types: ClassVar[dict[str, str]] = _TYPES
    late: ClassVar[float] = 0.5
    """Seconds after which it has counted what it was asked."""

    @property
    def jdbc(self) -> tuple[str, dict[str, str]]:
        """The address and the properties that Spark's JDBC source takes."""
        raise NotImplementedError

    def connect(self) -> Any:
        """Connect, to commit by itself."""
        raise NotImplementedError

    def lookup(self, columns: Sequence[str]) -> str:
        """Return the query of one key."""
        return f"SELECT {', '.join(columns)} FROM {self.table} WHERE {KEY} = %s"  # noqa: S608 - ours

    def queries(self) -> int:
        """Return how many queries the server has answered so far."""
        raise NotImplementedError

    def load(self, products: Products) -> None:
        """Make the table, unless it is there with all its rows."""
        if self._is_loaded(products):
            return
        batches = products.batches()
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {self.table}")
            columns = ", ".join(f"{c.name} {self.types[str(c.type)]}" for c in batches.schema)
            cursor.execute(f"CREATE TABLE {self.table} ({columns}, PRIMARY KEY ({KEY}))")
            self.fill(cursor, batches)

    def fill(self, cursor: Any, batches: pa.RecordBatchReader) -> None:
        """Copy rows into the empty table, and gather its statistics."""
        raise NotImplementedError

    def version(self) -> str:
        """Return the server's version."""
        return str(self._rows("SELECT version()")[0][0])

    @property
    def _parts(self) -> dict[str, Any]:
        parts = urlsplit(self.url)
        return {
            "host": parts.hostname or "",
            "port": parts.port,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": parts.path.lstrip("/"),
        }

    @property
    def _place(self) -> str:
        return "{host}:{port}/{database}".format(**self._parts)

    @property
    def _login(self) -> dict[str, str]:
        return {name: str(self._parts[name]) for name in ("user", "password")}

    def _rows(self, query: str) -> list[Any]:
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def _is_loaded(self, products: Products) -> bool:
        """Whether the table is whole; loading ends with its index."""
        known = f"SELECT 1 FROM information_schema.tables WHERE table_name = '{self.table}'"  # noqa: S608
        if not self._rows(known):
            return False
        return bool(self._rows(f"SELECT count(*) FROM {self.table}")[0][0] == products.rows)  # noqa: S608


class _PostgreSQL(Store):
    kind = "postgresql"
    late = 11.0  # what idle connections did

    @property
    def jdbc(self) -> tuple[str, dict[str, str]]:
        return f"jdbc:postgresql://{self._place}", {
            **self._login,
            "driver": "org.postgresql.Driver",
        }

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def queries(self) -> int:
        """Return the transactions; each query here is one. A server tells them a second late."""
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return int(self._rows(query)[0][0])

    def fill(self, cursor: Any, batches: pa.RecordBatchReader) -> None:
        with cursor.copy(f"COPY {self.table} FROM STDIN (FORMAT csv)") as copy:
            for batch in batches:
                copy.write(_csv(batch))
        cursor.execute(f"VACUUM ANALYZE {self.table}")


class _MySQL(Store):
    kind = "mysql"
    types = _TYPES | {"string": "varchar(100)"}

    @property
    def jdbc(self) -> tuple[str, dict[str, str]]:
        # MariaDB's driver, under the name by which Spark knows how to quote.
        address = f"jdbc:mysql://{self._place}?permitMysqlScheme"
        return address, {**self._login, "driver": "org.mariadb.jdbc.Driver"}

    def connect(self) -> Any:
        import pymysql

        return pymysql.connect(**self._parts, autocommit=True, local_infile=True)

    def queries(self) -> int:
        """Return the statements that select."""
        return int(self._rows("SHOW GLOBAL STATUS LIKE 'Com_select'")[0][1])

    def fill(self, cursor: Any, batches: pa.RecordBatchReader) -> None:
        for batch in batches:
            with NamedTemporaryFile(suffix=".csv") as file:
                file.write(_csv(batch))
                file.flush()
                cursor.execute(
                    f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE {self.table} "
                    "FIELDS TERMINATED BY ',' ENCLOSED BY '\"'"
                )
        cursor.execute(f"ANALYZE TABLE {self.table}")


def _csv(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    pc.write_csv(batch, sink, pc.WriteOptions(include_header=False))
    return sink.getvalue()


_KINDS: dict[str, type[Store]] = {"postgresql": _PostgreSQL, "mysql": _MySQL}


def store_of(url: str, table: str) -> Store:
    """Return the store at an address.

    Examples
    --------
    >>> store_of("mysql://me:secret@localhost:3306/shop", "products")
    _MySQL(table='products')
    """
    scheme = url.partition("://")[0]
    if scheme not in _KINDS:
        raise OptionError.unknown("database", scheme, _KINDS)
    return _KINDS[scheme](url, table)
