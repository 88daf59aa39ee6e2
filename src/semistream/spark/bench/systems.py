"""What is compared: enrichment, Spark's own joins, and the least that Python can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from semistream.enrich import enrich
from semistream.spark.bench.data import KEY
from semistream.spark.types import spark_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

__all__ = ["BOUND", "ENRICH", "OURS", "SPARK", "SYSTEMS", "Setting"]

_LONGEST = 1 << 16  # rows of the bound's constant columns; Spark's batches have 10,000


@dataclass(frozen=True)
class Setting:
    """What a system joins with, and how."""

    master: str
    """Ours; the others read the Parquet files of the same rows."""
    parquet: str
    how: str
    memory: int
    options: dict[str, Any] = field(default_factory=dict)
    """Of `enrich`."""


def _enrich(df: DataFrame, at: Setting) -> DataFrame:
    options = {"name": "bench"} | at.options
    return enrich(df, at.master, on=KEY, how=at.how, memory=at.memory, **options)


def _hashed(df: DataFrame, at: Setting) -> DataFrame:
    """Route rows by Spark's own hash of the key, then join them where they are."""
    routed = df.repartition(at.options["tasks"], KEY)
    return enrich(
        routed, at.master, on=KEY, how=at.how, memory=at.memory, **at.options | _NOT_ROUTED
    )


_NOT_ROUTED = {"partition": "none"}


def _joined(hint: str | None) -> Callable[[DataFrame, Setting], DataFrame]:
    """Give Spark's join of a stream with a static table."""

    def join(df: DataFrame, at: Setting) -> DataFrame:
        products = df.sparkSession.read.parquet(at.parquet)
        return df.join(products.hint(hint) if hint else products, KEY, at.how)

    return join


def _bound(df: DataFrame, at: Setting) -> DataFrame:
    """Append constant columns of the types that the join would append."""
    schema = pq.read_schema(next(Path(at.parquet).glob("*.parquet")))
    fields = [f for f in schema if f.name != KEY]
    row = pq.ParquetFile(next(Path(at.parquet).glob("*.parquet"))).iter_batches(1)
    first = next(row).drop_columns([KEY]).columns

    def appended(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = [pa.repeat(column[0], _LONGEST) for column in first]
        for batch in batches:
            more = [column.slice(0, batch.num_rows) for column in columns]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *more], names=[*batch.schema.names, *(f.name for f in fields)]
            )

    added = [spark_field(f, f.name, nullable=True) for f in fields]
    return df.mapInArrow(appended, StructType([*df.schema, *added]))


def _unchanged(df: DataFrame, at: Setting) -> DataFrame:  # noqa: ARG001 - as the others
    return df


ENRICH, BOUND = "enrich", "bound"
SPARK = {"default": None, "shuffle-hash": "shuffle_hash", "broadcast": "broadcast"}
"""Spark's own joins, and their hints."""
SYSTEMS: dict[str, Callable[[DataFrame, Setting], DataFrame]] = {
    ENRICH: _enrich,
    BOUND: _bound,
    **{name: _joined(hint) for name, hint in SPARK.items()},
    "hashed": _hashed,
    "none": _unchanged,
}
OURS = (ENRICH, BOUND)
