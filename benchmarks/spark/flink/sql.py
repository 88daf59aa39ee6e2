"""The tables and the query of Flink's lookup join."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from benchmarks.spark.data import KEY
from benchmarks.spark.database import Store

_TYPES = {"int64": "BIGINT", "int32": "INT", "double": "DOUBLE", "string": "STRING"}
_SALES = f"{KEY} BIGINT, sale BIGINT, quantity INT"


@dataclass(frozen=True)
class FlinkSetting:
    """What Flink joins with, and how."""

    store: Store
    """On PostgreSQL."""
    columns: pa.Schema
    """Of the table without its key."""
    cached: int
    """Rows in its cache."""
    how: Literal["left", "inner"] = "left"
    parallelism: int = 2
    heap: str = "1g"


def tables(at: FlinkSetting, source: Path, target: Path | None) -> list[str]:
    """Define the stream, the table, and where joined rows go: into a folder, or nowhere."""
    address, properties = at.store.jdbc
    products = {
        "connector": "jdbc",
        "url": address,
        "table-name": at.store.table,
        "username": properties["user"],
        "password": properties["password"],
        "lookup.cache": "PARTIAL",
        "lookup.partial-cache.max-rows": str(at.cached),
    }
    sink = _files(target) if target else {"connector": "blackhole"}
    added = ", ".join(f"`{field.name}` {_TYPES[str(field.type)]}" for field in at.columns)
    return [
        _table("sales", f"{_SALES}, proc_time AS PROCTIME()", _files(source)),
        _table("products", f"{KEY} BIGINT, {added}, PRIMARY KEY ({KEY}) NOT ENFORCED", products),
        _table("joined", f"{_SALES}, {added}", sink),
    ]


def _files(folder: Path) -> dict[str, str]:
    return {"connector": "filesystem", "path": folder.absolute().as_uri(), "format": "parquet"}


def _table(name: str, columns: str, options: dict[str, str]) -> str:
    """Define a table.

    Examples
    --------
    >>> _table("joined", "sale BIGINT", {"connector": "it's"})
    "CREATE TABLE joined (sale BIGINT) WITH ('connector' = 'it''s')"
    """
    quoted = {key: value.replace("'", "''") for key, value in options.items()}
    given = ", ".join(f"'{key}' = '{value}'" for key, value in quoted.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({given})"


def insert(at: FlinkSetting) -> str:
    """Return the join, which is the job."""
    added = ", ".join(f"p.`{name}`" for name in at.columns.names)
    return (
        f"INSERT INTO joined SELECT s.{KEY}, s.sale, s.quantity, {added} FROM sales AS s "  # noqa: S608 - ours
        f"{at.how.upper()} JOIN products FOR SYSTEM_TIME AS OF s.proc_time AS p "
        f"ON s.{KEY} = p.{KEY}"
    )
