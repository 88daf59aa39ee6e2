"""The two ways of rows through Python: the key alone, or whole rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql.types import BooleanType, StructField, StructType

from semistream.names import unused
from semistream.spark.lookup.outcome import Found, handled, settled
from semistream.spark.lookup.worker import answer_keys, join_rows
from semistream.spark.types import quoted, spark_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from semistream.spark.lookup.job import Job
    from semistream.spark.lookup.worker import Channel

__all__ = ["by_keys", "by_rows", "columns_of", "scalar"]


def by_rows(df: DataFrame, job: Job, channel: Channel, master: pa.Schema) -> DataFrame:
    """Send whole rows to Python and back."""

    def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join_rows(job, channel, batches)

    # The stream's own fields, with their metadata: a watermark is told from it. Numbers for names,
    # for Spark takes a dot in a name apart here.
    columns = columns_of(job, master)
    marks = [StructField(job.mark, BooleanType())] if job.mark else []
    fields = [*df.schema, *columns, *marks]
    numbered = [
        StructField(f"c{i}", f.dataType, f.nullable, f.metadata) for i, f in enumerate(fields)
    ]
    rows = df.toDF(*(f.name for f in numbered[: len(df.columns)]))
    rows = rows.mapInArrow(joined, StructType(numbered)).toDF(*(f.name for f in fields))
    if not job.mark:
        return rows.observe(f"semistream.{job.name}", F.count(F.lit(1)).alias("rows_out"))
    found = {field: F.col(quoted(field.name)) for field in columns}
    return settled(rows, job, Found(df.columns, F.col(job.mark), found))


def by_keys(df: DataFrame, job: Job, channel: Channel, master: pa.Schema) -> DataFrame:
    """Send the keys alone; the stream's columns stay in the JVM."""
    asking, columns = job.keys_only(), columns_of(job, master)

    def answers(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return answer_keys(asking, channel, batches)

    asks = [df[quoted(name)] for name in job.on]
    if job.refuses and job.earlier:
        asks.append(~handled(job))
    name = unused("__answer", df.columns)
    asked = df.withColumn(name, scalar(answers, columns or BooleanType(), asks))
    answer = F.col(name)
    matched = answer.isNotNull() if columns else answer
    return settled(asked, job, Found(df.columns, matched, {f: answer[f.name] for f in columns}))


def columns_of(job: Job, master: pa.Schema) -> StructType:
    """Give the master's columns that come out, as Spark has them.

    All may be null: a snapshot that comes while the query runs may have nulls where this one must
    not, and Spark does not look for them where none were said to be.
    """
    fields = [master.field(name) for name in job.select]
    return StructType([spark_field(f, job.prefix + f.name, nullable=True) for f in fields])


def scalar(
    answer: Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]],
    kind: DataType,
    columns: list[Column],
) -> Column:
    """Give the column that a function on batches of key columns computes.

    It counts as nondeterministic, so that Spark does not compute it twice where it is used twice.
    """
    if len(columns) == 1:

        def of_one(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
            return answer((key,) for key in keys)

        function: Any = of_one
        hint = Iterator[pa.Array]
    else:

        def of_several(keys: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            return answer(keys)

        function, hint = of_several, Iterator[tuple[pa.Array, ...]]
    # Spark tells the kind of function from its annotations, which must not be strings.
    function.__annotations__ = {"keys": hint, "return": Iterator[pa.Array]}
    arrow_udf: Any = F.__dict__["arrow_udf"]  # not in 4.0, nor in the types of 4.1
    column: Column = arrow_udf(function, kind).asNondeterministic()(*columns)
    return column
