"""The least that a way through Python does: columns are appended, and nothing is looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from benchmarks.spark.data import KEY
from semistream.spark.types import spark_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from benchmarks.spark.data import Products

__all__ = ["with_constants"]

_LONGEST = 1 << 16  # rows of the bound's constant columns; Spark's batches have 10,000


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
