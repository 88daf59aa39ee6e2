"""Ways to enrich a stream from a database: ours, JDBC key lists, row by row; and a bound."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql.types import StructType

from benchmarks.spark.constants import with_constants
from benchmarks.spark.data import KEY, Products
from semistream.api import enrich
from semistream.master import open_master
from semistream.spark.types import spark_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from benchmarks.spark.live.store import Store

__all__ = [
    "BOUND",
    "ENRICH",
    "JDBC",
    "LIVE",
    "PLAIN",
    "ROWS",
    "LiveSetting",
    "by_key_lists",
    "enriched",
]

ENRICH, PLAIN, JDBC, ROWS = "enrich", "plain", "jdbc", "rows"
BOUND = "bound"  # does not join: what it takes to go through Python and back


@dataclass(frozen=True)
class LiveSetting:
    """What a system joins with, and how."""

    store: Store
    columns: pa.Schema
    """Of the table without its key."""
    memory: int
    chunk: int
    """Keys in one list of the JDBC way."""
    how: str = "left"


def enriched(df: DataFrame, at: LiveSetting) -> DataFrame:
    """Join by `semistream.api`."""
    master = open_master(at.store.url, table=at.store.table, key=KEY, ttl=3600)
    return enrich(df, master, on=KEY, how=at.how, memory=at.memory, name="live")


def by_one_list(batch: DataFrame, at: LiveSetting) -> DataFrame:
    """Join a batch as it is mostly written: collect its keys, read their rows, join."""
    keys = _keys(batch) or ["-1"]
    found = _read(batch, at, [f"{KEY} IN ({','.join(keys)})"])
    return batch.join(found, KEY, "left").select(*batch.columns, *at.columns.names)


def by_key_lists(batch: DataFrame, at: LiveSetting) -> DataFrame:
    """Join a batch as it is best written.

    Keys are given in lists of ``chunk``, each read by a task of its own; what comes back is marked
    to be broadcast, for else Spark sorts both sides.
    """
    keys = _keys(batch)
    lists = [keys[i : i + at.chunk] for i in range(0, len(keys), at.chunk)] or [["-1"]]
    found = _read(batch, at, [f"{KEY} IN ({','.join(each)})" for each in lists])
    joined = batch.join(F.broadcast(found), KEY, "left")
    return joined.select(*batch.columns, *at.columns.names)


def _keys(batch: DataFrame) -> list[str]:
    return [str(row[0]) for row in batch.select(KEY).distinct().collect() if row[0] is not None]


def _read(batch: DataFrame, at: LiveSetting, predicates: list[str]) -> DataFrame:
    """Read rows by Spark's JDBC source, a partition a predicate."""
    address, properties = at.store.jdbc
    return batch.sparkSession.read.jdbc(
        address, at.store.table, predicates=predicates, properties=properties
    )


def row_by_row(df: DataFrame, at: LiveSetting) -> DataFrame:
    """Ask for every row by itself, over a connection that stays open in the worker."""

    def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cursor, query = _cursor(at.store), at.store.lookup(at.columns.names)
        nothing = (None,) * len(at.columns)
        for batch in batches:
            found = []
            for key in batch.column(KEY).to_pylist():
                cursor.execute(query, (key,))
                found.append(cursor.fetchone() or nothing)
            columns = zip(*found, strict=True) if found else [()] * len(at.columns)
            more = [pa.array(c, f.type) for c, f in zip(columns, at.columns, strict=True)]
            names = [*batch.schema.names, *at.columns.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], names=names)

    added = [spark_field(f, f.name, nullable=True) for f in at.columns]
    return df.mapInArrow(joined, StructType([*df.schema, *added]))


def constants(df: DataFrame, at: LiveSetting) -> DataFrame:  # noqa: ARG001 - as the others
    """Append the same product to every row, without asking anyone."""
    return with_constants(df, Products(1, Path()))


_open: dict[Store, Any] = {}


def _cursor(store: Store) -> Any:  # noqa: ANN401 - the driver's own type
    if store not in _open:
        _open[store] = store.connect().cursor()
    return _open[store]


def _in_batches(
    join: Callable[[DataFrame, LiveSetting], DataFrame],
) -> Callable[[DataFrame, LiveSetting], DataStreamWriter]:
    def stream(df: DataFrame, at: LiveSetting) -> DataStreamWriter:
        def write(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - as Spark calls it
            batch.persist()  # it is read twice
            join(batch, at).write.format("noop").mode("overwrite").save()
            batch.unpersist()

        return df.writeStream.foreachBatch(write)

    return stream


def _as_stream(
    join: Callable[[DataFrame, LiveSetting], DataFrame],
) -> Callable[[DataFrame, LiveSetting], DataStreamWriter]:
    return lambda df, at: join(df, at).writeStream.format("noop")


@dataclass(frozen=True)
class LiveSystem:
    """How a system joins rows at hand, and how it joins a stream into no sink."""

    rows: Callable[[DataFrame, LiveSetting], DataFrame]
    stream: Callable[[DataFrame, LiveSetting], DataStreamWriter]


LIVE = {
    ENRICH: LiveSystem(enriched, _as_stream(enriched)),
    PLAIN: LiveSystem(by_one_list, _in_batches(by_one_list)),
    JDBC: LiveSystem(by_key_lists, _in_batches(by_key_lists)),
    ROWS: LiveSystem(row_by_row, _as_stream(row_by_row)),
    BOUND: LiveSystem(constants, _as_stream(constants)),
}
