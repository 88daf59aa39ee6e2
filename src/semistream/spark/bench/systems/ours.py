"""Ours: `enrich` with any algorithm; and the least that Python can do, which bounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from semistream.algorithms import algorithms
from semistream.enrich import enrich
from semistream.spark.bench.data import KEY
from semistream.spark.bench.systems.base import System
from semistream.spark.types import spark_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from semistream.spark.bench.data import Products
    from semistream.spark.bench.systems.base import Setting

__all__ = [
    "AUTO",
    "BOUND",
    "ENRICH",
    "HASHED",
    "NONE",
    "OURS",
    "PUBLISHED",
    "ours_of",
    "with_constants",
]

_LONGEST = 1 << 16  # rows of the bound's constant columns; Spark's batches have 10,000

ENRICH, AUTO, BOUND, HASHED, NONE = "enrich", "enrich-auto", "bound", "hashed", "none"


def ours_of(algorithm: str) -> str:
    """Name the system that is `enrich` with an algorithm."""
    return f"enrich-{algorithm}"


def _enriched(**given: str) -> Callable[[DataFrame, Setting], DataFrame]:
    def join(df: DataFrame, at: Setting) -> DataFrame:
        options = {"name": "bench"} | given | at.options
        return enrich(df, at.master, on=KEY, how=at.how, memory=at.memory, **options)

    return join


def _hashed(df: DataFrame, at: Setting) -> DataFrame:
    """Route rows by Spark's own hash of the key, then join them where they are."""
    routed = df.repartition(at.options["tasks"], KEY)
    options = at.options | {"partition": "none"}
    return enrich(routed, at.master, on=KEY, how=at.how, memory=at.memory, **options)


def with_constants(df: DataFrame, products: Products) -> DataFrame:
    """Append constant columns of the types that the join would append."""
    row = products.batches().read_next_batch().slice(0, 1).drop_columns([KEY])
    fields, first = list(row.schema), row.columns

    def appended(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = [pa.repeat(column[0], _LONGEST) for column in first]
        for batch in batches:
            more = [column.slice(0, batch.num_rows) for column in columns]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *more], names=[*batch.schema.names, *(f.name for f in fields)]
            )

    added = [spark_field(f, f.name, nullable=True) for f in fields]
    return df.mapInArrow(appended, StructType([*df.schema, *added]))


def _bound(df: DataFrame, at: Setting) -> DataFrame:
    return with_constants(df, at.products)


def _unchanged(df: DataFrame, at: Setting) -> DataFrame:  # noqa: ARG001 - as the others
    return df


PUBLISHED = tuple(name for name in algorithms() if name not in {"adaptive", "auto"})
"""The algorithms of the papers."""
OURS: dict[str, System] = {
    ENRICH: System("enrich", _enriched()),
    AUTO: System("enrich, auto", _enriched(algorithm="auto")),
    **{ours_of(name): System(f"enrich, {name}", _enriched(algorithm=name)) for name in PUBLISHED},
    BOUND: System("constant columns by mapInArrow (bound)", _bound),
    HASHED: System("enrich behind Spark's hash", _hashed),
    NONE: System("no join", _unchanged),
}
