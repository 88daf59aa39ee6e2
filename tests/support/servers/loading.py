"""Arrow's types as columns of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPES = {
    pa.bool_(): ("boolean", "boolean"),
    pa.int16(): ("smallint", "smallint"),
    pa.int32(): ("integer", "integer"),
    pa.int64(): ("bigint", "bigint"),
    pa.float32(): ("real", "float"),
    pa.float64(): ("double precision", "double"),
    pa.string(): ("text", "varchar(190)"),  # MariaDB wants to know how long a key may be
    pa.binary(): ("bytea", "varbinary(190)"),
    pa.date32(): ("date", "date"),
    pa.timestamp("us"): ("timestamp", "datetime(6)"),
    pa.timestamp("us", "UTC"): ("timestamptz", "timestamp(6)"),
}


def definition(schema: pa.Schema, key: str | Sequence[str] | None, scheme: str) -> str:
    """Give what stands between the parentheses of CREATE TABLE."""
    quote = '"' if scheme == "postgresql" else "`"
    columns = [f"{quote}{field.name}{quote} {_type(field, scheme)}" for field in schema]
    if key is not None:
        names = [key] if isinstance(key, str) else key
        columns.append(f"PRIMARY KEY ({', '.join(f'{quote}{name}{quote}' for name in names)})")
    return ", ".join(columns)


def _type(field: pa.Field, scheme: str) -> str:
    if pa.types.is_decimal(field.type):
        text = f"decimal({field.type.precision}, {field.type.scale})"
    else:
        text = _TYPES[field.type][scheme != "postgresql"]
    return text if field.nullable else f"{text} NOT NULL"
