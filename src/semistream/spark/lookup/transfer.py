"""The two ways of rows through Python: the key alone, or whole rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql.types import BooleanType, StructField, StructType

from semistream.names import unused
from semistream.spark.lookup.outcome import Answer, apply_outcome, missing_before
from semistream.spark.lookup.worker import answer_keys, join_rows
from semistream.spark.types import quote, spark_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from semistream.spark.lookup.job import Job
    from semistream.spark.lookup.worker import Channel

__all__ = ["arrow_column", "by_keys", "by_rows", "master_columns"]


def by_rows(df: DataFrame, job: Job, channel: Channel, master: pa.Schema) -> DataFrame:
    """Send whole rows to Python and back."""

    def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join_rows(job, channel, batches)

    # The stream's own fields, with their metadata: a watermark is read from it. Numbers for names,
    # for Spark takes a dot in a name apart here.
    columns = master_columns(job, master)
    marks = [StructField(job.mark, BooleanType())] if job.mark else []
    fields = [*df.schema, *columns, *marks]
    numbered = [
        StructField(f"c{i}", f.dataType, f.nullable, f.metadata) for i, f in enumerate(fields)
    ]
    rows = df.toDF(*(f.name for f in numbered[: len(df.columns)]))
    rows = rows.mapInArrow(joined, StructType(numbered)).toDF(*(f.name for f in fields))
    if not job.mark:
        return rows.observe(f"semistream.{job.name}", F.count(F.lit(1)).alias("rows_out"))
    values = {field: F.col(quote(field.name)) for field in columns}
    return apply_outcome(rows, job, Answer(df.columns, F.col(job.mark), values))


def by_keys(df: DataFrame, job: Job, channel: Channel, master: pa.Schema) -> DataFrame:
    """Send the keys alone; the stream's columns stay in the JVM."""
    scalar, columns = job.keys_only(), master_columns(job, master)

    def answers(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return answer_keys(scalar, channel, batches)

    keys = [df[quote(name)] for name in job.on]
    if job.refuses and job.earlier:
        keys.append(~missing_before(job))
    name = unused("__answer", df.columns)
    rows = df.withColumn(name, arrow_column(answers, columns or BooleanType(), keys))
    answer = F.col(name)
    matched = answer.isNotNull() if columns else answer
    values = {field: answer[field.name] for field in columns}
    return apply_outcome(rows, job, Answer(df.columns, matched, values))


def master_columns(job: Job, master: pa.Schema) -> StructType:
    """Return the master's columns that come out, as Spark has them.

    All may be null: a snapshot that comes while the query runs may have nulls where this one must
    not, and Spark does not look for them where none were declared.
    """
    fields = [master.field(name) for name in job.select]
    return StructType([spark_field(f, job.prefix + f.name, nullable=True) for f in fields])


def arrow_column(
    answer: Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]],
    kind: DataType,
    columns: list[Column],
) -> Column:
    """Return the column that a function on batches of key columns computes.

    It counts as nondeterministic, so that Spark does not compute it twice where it is used twice.
    """

    def of_one(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return answer((key,) for key in keys)

    def of_several(keys: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return answer(keys)

    function: Any = of_one if len(columns) == 1 else of_several
    hint = Iterator[pa.Array] if len(columns) == 1 else Iterator[tuple[pa.Array, ...]]
    # Spark tells the kind of function from its annotations, which must not be strings.
    function.__annotations__ = {"keys": hint, "return": Iterator[pa.Array]}
    arrow_udf: Any = F.__dict__["arrow_udf"]  # not in 4.0, nor in the types of 4.1
    column: Column = arrow_udf(function, kind).asNondeterministic()(*columns)
    return column
