"""MySQL and MariaDB: rows come by the text protocol, keys are sent as a JSON table."""

from __future__ import annotations

import json
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

__all__ = ["MySQL"]

# Errors of the server and the client after which a retry can help: connections, locks, shutdown.
_TRANSIENT = {
    0, 1040, 1047, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1614,
    1927, 1969, 2002, 2003, 2006, 2013, 2014, 2055, 3024, 4031,
}  # fmt: skip
_OPTIONS = {
    "ssl_ca": str, "ssl_cert": str, "ssl_key": str, "ssl_verify_cert": bool,
    "ssl_verify_identity": bool, "ssl_disabled": bool, "unix_socket": str, "connect_timeout": int,
    "read_timeout": int, "write_timeout": int, "read_default_file": str, "read_default_group": str,
}  # fmt: skip
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "integer": 32, "bigint": 64}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_KINDS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "year": pa.int16(),
    "bit": pa.uint64(),
}
# As text a FLOAT has six digits; as a DOUBLE it is whole.
_SQL = {"float": "{} + 0e0", "bit": "{} + 0"}

_COLUMNS = """
SELECT column_name, data_type, column_type, numeric_precision, numeric_scale,
       character_set_name, collation_name
FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s ORDER BY ordinal_position
"""
_INDEXES = """
SELECT MIN(non_unique) = 0 AND SUM(sub_part IS NOT NULL) = 0,
       JSON_ARRAYAGG(JSON_ARRAY(seq_in_index, column_name))
FROM information_schema.statistics
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
GROUP BY index_name
"""
_ROWS = """
SELECT table_rows FROM information_schema.tables
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
"""


class MySQL(Dialect):
    """MySQL from 8.0 on and MariaDB from 10.6 on, by PyMySQL."""

    lenenc = True

    def connect(self, address: Address) -> Any:  # noqa: ANN401
        """Connect; times are in UTC."""
        secret = address.secret()
        login = {
            "host": address.host,
            "port": address.port,
            "user": address.user,
            "password": secret.reveal() if secret else None,
            "database": address.database,
        }
        known = {name: value for name, value in login.items() if value}
        defaults = {"connect_timeout": 10, "read_timeout": 300, "program_name": "semistream"}
        return _driver().connect(
            **{**defaults, **_options(address), **known},
            charset="utf8mb4",
            autocommit=True,
            init_command="SET time_zone = '+00:00'",
        )

    def describe(self, connection: Any, parts: Sequence[str]) -> Description | None:  # noqa: ANN401
        """Describe a table by the information schema."""
        name = (parts[0] if len(parts) > 1 else None, parts[-1])
        with connection.cursor() as cursor:
            cursor.execute(_COLUMNS, name)
            columns = cursor.fetchall()
            if not columns:
                return None
            cursor.execute(_INDEXES, name)
            indexes = [(bool(u), sorted(json.loads(names))) for u, names in cursor.fetchall()]
            cursor.execute(_ROWS, name)
            rows = cursor.fetchone()
        return Description(
            tuple(_column(*column) for column in columns),
            int((rows and rows[0]) or 0),
            tuple((unique, tuple(name for _, name in names)) for unique, names in indexes),
        )

    def messages(self, connection: Any, statement: Statement) -> Iterator[bytes]:  # noqa: ANN401
        """Run a query; yield its rows unparsed: parsing takes most of the driver's time."""
        from pymysql.connections import MySQLResult  # noqa: PLC0415 - an extra
        from pymysql.constants import COMMAND  # noqa: PLC0415

        with connection.cursor() as cursor:
            sql = cursor.mogrify(statement.sql, statement.parameters)
        connection._execute_command(COMMAND.COM_QUERY, sql)  # noqa: SLF001 - none else streams
        result = MySQLResult(connection)
        try:
            result.init_unbuffered_query()
            while not (packet := connection._read_packet()).is_eof_packet():  # noqa: SLF001
                yield packet.get_all_data()
        finally:
            result.unbuffered_active = False  # else it reads the rest of what nobody wants

    def is_transient(self, error: Exception) -> bool | None:
        """Judge by the server's number."""
        if not isinstance(error, _driver().err.Error):
            return None
        number = error.args[0] if error.args else 0
        return number in _TRANSIENT

    def quote(self, name: str) -> str:
        """Quote as MySQL does, whatever its mode."""
        return f"`{name.replace('`', '``').replace('%', '%%')}`"

    def _key_source(self, keys: Sequence[Column], values: Sequence[pa.Array]) -> Statement:
        columns = ", ".join(f"k{i} {_json_type(c)} PATH '$[{i}]'" for i, c in enumerate(keys))
        table = f"JSON_TABLE(%s, '$[*]' COLUMNS (n FOR ORDINALITY, {columns})) AS k"
        if len(values) == 1 and pa.types.is_integer(values[0].type):
            return Statement(table, (f"[[{join_numbers(values[0], '],[')}]]",))
        rows = zip(*(_json_values(array) for array in values), strict=True)
        return Statement(table, (json.dumps(list(rows), ensure_ascii=False),))

    def _same_key(self, column: Column, number: int) -> str:
        key = f"UNHEX(k.k{number})" if column.kind == pa.binary() else f"k.k{number}"
        return f"{self._column(column.name)} = {key}"

    def key_problem(self, column: Column) -> str:
        """Return why a column cannot be a key; empty if it can."""
        known = column.declared in _INTEGERS or column.declared in _TEXTS | _BYTES
        if known or column.declared in {"decimal", "date", "datetime", "timestamp", "year"}:
            return ""
        return f"{column.declared} has no list of keys here"


def _driver() -> Any:  # noqa: ANN401
    try:
        import pymysql  # noqa: PLC0415 - an extra
    except ImportError:
        msg = "a master in MySQL or MariaDB needs PyMySQL: pip install 'semistream[mysql]'"
        raise OptionError(msg) from None
    return pymysql


def _options(address: Address) -> dict[str, Any]:
    """Convert the options of the URL to the driver's types."""
    options: dict[str, Any] = {}
    for name, value in address.options:
        if name not in _OPTIONS:
            raise OptionError.unknown("option of the URL", name, _OPTIONS)
        kind = _OPTIONS[name]
        options[name] = value.lower() in {"1", "true", "yes", "on"} if kind is bool else kind(value)
    return options


def _column(
    name: str,
    declared: str,
    whole: str,
    precision: int | None,
    scale: int | None,
    charset: str | None,
    collation: str | None,
) -> Column:
    declared = declared.lower()
    if declared in _INTEGERS:
        sign = "u" if "unsigned" in whole.lower() else ""
        kind = pa.type_for_alias(f"{sign}int{_INTEGERS[declared]}")
    elif declared == "decimal":
        wide = pa.decimal256 if (precision or 0) > 38 else pa.decimal128
        kind = wide(precision or 10, scale or 0)
    else:
        kind = pa.binary() if declared in _BYTES else _KINDS.get(declared, pa.string())
    full = f"{whole} CHARACTER SET {charset} COLLATE {collation}" if charset else whole
    return Column(name, kind, _SQL.get(declared, "{}"), declared, True, full)


def _json_type(column: Column) -> str:
    """Return the type of a key's column in a JSON table: one that an index can be used for."""
    if column.declared in _INTEGERS or column.declared == "year":
        return "BIGINT UNSIGNED" if pa.types.is_unsigned_integer(column.kind) else "BIGINT"
    if column.kind == pa.binary():
        return "LONGTEXT"
    if column.declared in {"datetime", "timestamp"}:
        return "DATETIME(6)"
    if column.declared in {"enum", "set"}:
        return re.sub(r"^(enum|set)\(.*\)", "VARCHAR(255)", column.full, flags=re.DOTALL)
    return column.full


def _json_values(values: pa.Array) -> list[Any]:
    t = pa.types
    if t.is_integer(values.type) or values.type == pa.string():
        plain: list[Any] = values.to_pylist()
        return plain
    if values.type == pa.binary():
        return [value.hex() for value in values.to_pylist()]
    if t.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    texts: list[Any] = pc.cast(values, pa.string()).to_pylist()
    return texts
