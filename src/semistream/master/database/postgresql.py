"""PostgreSQL: rows come by binary COPY, keys are sent as arrays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import OptionError
from semistream.master.database.columns import Column
from semistream.master.database.dialect import Description, Dialect, Statement, join_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semistream.master.database.address import Address
    from semistream.master.database.dialect import Table

__all__ = ["PostgreSQL"]

_HEADER = 19  # bytes before the first row of a binary COPY: signature, flags, no extension
_END = b"\xff\xff"
# Classes of SQLSTATE after which a retry can help: connections, rollbacks, resources, shutdown.
_TRANSIENT = ("08", "40", "53", "57", "55P03", "58030", "25P03")
_PERMANENT_LOGIN = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba.conf entry|"
    r"not permitted to log in|invalid .*option|permission denied|certificate|sslmode",
    re.IGNORECASE,
)

_NUMBER = r"^(-?[0-9]+(\.[0-9]+)?|NaN|-?Infinity)$"  # as a numeric is printed
_LONGEST_NUMBER = 1 << 14  # bytes

_BINARY = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_KEYS = {
    "int2": "bigint", "int4": "bigint", "int8": "bigint", "text": "text", "varchar": "text",
    "bpchar": "text", "name": "text", "bytea": "bytea", "bool": "boolean", "date": "date",
    "numeric": "numeric", "timestamp": "timestamp", "timestamptz": "timestamptz", "uuid": "text",
}  # fmt: skip
_CAST = {"bpchar": "::bpchar", "uuid": "::uuid"}

_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attname, a.attnum, a.atttypid AS type, a.atttypmod AS modifier
    FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT b.attname, b.attnum, t.typbasetype,
           CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE b.modifier END
    FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd'
)
SELECT b.attname, t.typname, b.modifier FROM base b JOIN pg_type t ON t.oid = b.type
WHERE t.typtype <> 'd' ORDER BY b.attnum
"""
_INDEXES = """
SELECT i.indisunique AND i.indpred IS NULL
         AND bool_and(i.indcollation[k.n - 1] = a.attcollation)
         AND NOT EXISTS (SELECT FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhparent
                         WHERE h.inhparent = i.indrelid AND c.relkind <> 'p'),
       array_agg(a.attname ORDER BY k.n)
FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, n), pg_attribute a
WHERE i.indrelid = %s AND i.indisvalid AND i.indexprs IS NULL AND k.n <= i.indnkeyatts
  AND a.attrelid = i.indrelid AND a.attnum = k.number
GROUP BY i.indexrelid, i.indrelid, i.indisunique, i.indpred
"""


class PostgreSQL(Dialect):
    """PostgreSQL, by psycopg."""

    lenenc = False

    def connect(self, address: Address) -> Any:  # noqa: ANN401
        """Connect; what is not in the URL comes from PG… variables and the password file."""
        psycopg = _driver()
        secret = address.secret()
        login = {
            "host": address.host,
            "port": address.port,
            "user": address.user,
            "dbname": address.database,
            "password": secret.reveal() if secret else None,
        }
        defaults = {
            "connect_timeout": 10,
            "tcp_user_timeout": 30_000,
            "application_name": "semistream",
        }
        known = {name: value for name, value in login.items() if value}
        return psycopg.connect(
            **{**defaults, **dict(address.options), **known},
            autocommit=True,
            client_encoding="UTF8",
        )

    def describe(self, connection: Any, parts: Sequence[str]) -> Description | None:  # noqa: ANN401
        """Describe a table by the catalogue."""
        name = ".".join(_plain_quoted(part) for part in parts)
        known = connection.execute(
            "SELECT oid, reltuples FROM pg_class WHERE oid = to_regclass(%s)", (name,)
        ).fetchone()
        if known is None:
            return None
        columns = connection.execute(_COLUMNS, (known[0],)).fetchall()
        indexes = connection.execute(_INDEXES, (known[0],)).fetchall()
        return Description(
            tuple(_column(*column) for column in columns),
            max(0, int(known[1])),
            tuple((bool(unique), tuple(names)) for unique, names in indexes),
        )

    def messages(self, connection: Any, statement: Statement) -> Iterator[bytes]:  # noqa: ANN401
        """Run a query as COPY; parameters are put in by the driver, which escapes them."""
        query = f"COPY ({statement.sql}) TO STDOUT (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(query, statement.parameters) as copy:
            data = bytes(copy.read())[_HEADER:] or copy.read()
            while data and data != _END:
                yield data
                data = _next(connection.pgconn) or copy.read()
            while copy.read():  # nothing comes after the end but what ends the query
                pass

    def is_transient(self, error: Exception) -> bool | None:
        """Judge by SQLSTATE; without one, the connection failed."""
        psycopg = _driver()
        if not isinstance(error, psycopg.Error):
            return None
        state: str | None = error.sqlstate
        if state:
            return state.startswith(_TRANSIENT)
        if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            asked = getattr(error.pgconn, "needs_password", False)  # in whatever language
            return not (asked or _PERMANENT_LOGIN.search(str(error)))
        return False

    def quote(self, name: str) -> str:
        """Quote by the driver's rules."""
        return _plain_quoted(name).replace("%", "%%")

    def _key_source(self, keys: Sequence[Column], values: Sequence[pa.Array]) -> Statement:
        arrays = ", ".join(f"%s::{_KEYS[column.declared]}[]" for column in keys)
        names = ", ".join(f"k{i}" for i in range(len(keys)))
        lists = tuple(  # integers as the text of an array, which is faster
            f"{{{join_numbers(array, ',')}}}"
            if pa.types.is_integer(array.type)
            else array.to_pylist()
            for array in values
        )
        return Statement(f"unnest({arrays}) WITH ORDINALITY AS k({names}, n)", lists)

    def _join(self, table: Table, condition: str) -> str:
        """Look every key up, where there is an index to do it with.

        By itself the planner reads the whole index for some thousand keys, with workers, which
        takes twice as long and more cores. ``OFFSET 0`` keeps it from merging the subquery.
        """
        if not table.unique:
            return super()._join(table, condition)
        columns = ", ".join(self._column(column.name) for column in table.columns)
        rows = f"SELECT {columns} FROM {self._name(table)} AS t WHERE {condition} OFFSET 0"  # noqa: S608
        return f"CROSS JOIN LATERAL ({rows}) AS t"

    def _same_key(self, column: Column, number: int) -> str:
        return f"{self._column(column.name)} = k.k{number}{_CAST.get(column.declared, '')}"

    def can_hold(self, column: Column, values: pa.Array) -> pa.Array:
        """Return which keys the column can hold at all; a query for others would be refused."""
        if column.declared == "uuid":
            return pc.match_substring_regex(values, r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        if column.declared == "numeric" and values.type == pa.string():
            short = pc.less(pc.binary_length(values), _LONGEST_NUMBER)
            return pc.and_(short, pc.match_substring_regex(values, _NUMBER))
        if values.type == pa.string():
            return pc.invert(pc.match_substring(values, "\0"))
        return super().can_hold(column, values)

    def key_problem(self, column: Column) -> str:
        """Return why a column cannot be a key; empty if it can."""
        return "" if column.declared in _KEYS else f"{column.declared} has no list of keys here"


def _driver() -> Any:  # noqa: ANN401
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError:
        msg = "a master in PostgreSQL needs psycopg: pip install 'semistream[postgresql]'"
        raise OptionError(msg) from None
    return psycopg


def _next(pgconn: Any) -> bytes | None:  # noqa: ANN401
    """Return the row that has arrived already, if one has; to wait for each costs more."""
    size, data = pgconn.get_copy_data(1)
    if size >= 0:
        return bytes(data) if size else None
    from psycopg import errors, pq  # noqa: PLC0415 - an extra

    result = pgconn.get_result()
    state = result.error_field(pq.DiagnosticField.SQLSTATE) if result else None
    text = (result.error_message if result else pgconn.error_message).decode(errors="replace")
    raise errors.lookup(state.decode())(text) if state else errors.OperationalError(text)


def _plain_quoted(name: str) -> str:
    from psycopg import sql  # noqa: PLC0415 - an extra

    quoted: str = sql.Identifier(name).as_string(None)
    return quoted


def _column(name: str, declared: str, modifier: int) -> Column:
    # Every column is cast to what it was when the table was opened: should it be altered, the
    # database converts or refuses; bytes are never taken for what they are not.
    if declared in _BINARY:
        return Column(name, _BINARY[declared], f"{{}}::{declared}", declared, text=False)
    if declared == "bytea":
        return Column(name, pa.binary(), "{}::bytea", declared, text=True)
    kind = pa.string()  # also of a numeric without a precision: text loses nothing
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if declared == "numeric" and modifier >= 0 and scale <= precision <= 76:
        kind = (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)
    return Column(name, kind, "{}::text", declared, text=True)
