"""Where a pipeline's rows go: a DataFrame as a writer for a sink of the file."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from semistream.pipeline.file import ends
from semistream.pipeline.io.postgresql import PostgresqlWriter
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["kafka_options", "kafka_rows", "writer"]


@singledispatch
def writer(sink: object, frame: DataFrame, query: str) -> DataStreamWriter:
    """Give a writer of this DataFrame to a sink.

    Parameters
    ----------
    sink
        A sink of a pipeline.
    frame
        What is written.
    query
        An id that stays the same over restarts, and is another for another checkpoint.
    """
    raise NotImplementedError(sink, frame, query)


@writer.register(ends.ParquetSink)
def _(sink: ends.ParquetSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    return _table(sink, frame, "parquet")


@writer.register(ends.DeltaSink)
def _(sink: ends.DeltaSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    return _table(sink, frame, "delta")


def _table(
    sink: ends.ParquetSink | ends.DeltaSink, frame: DataFrame, kind: str
) -> DataStreamWriter:
    options = {name: str(value) for name, value in sink.options.items()}
    found = frame.writeStream.format(kind).options(**options).option("path", sink.path)
    return found.partitionBy(*sink.partition_by) if sink.partition_by else found


@writer.register(ends.KafkaSink)
def _(sink: ends.KafkaSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    rows = kafka_rows(sink, frame)
    return rows.writeStream.format("kafka").options(**kafka_options(sink))


def kafka_rows(sink: ends.KafkaSink, frame: DataFrame) -> DataFrame:
    """Give rows as Kafka has them: a JSON object each, with a key if there is one."""
    columns = [sf.col(quoted(name)) for name in frame.columns]
    # Without the option a null would be left out, and rows of one table have different fields.
    value = sf.to_json(sf.struct(*columns), {"ignoreNullFields": "false"}).alias("value")
    key = [sf.col(quoted(sink.key)).cast("string").alias("key")] if sink.key else []
    return frame.select(*key, value)


def kafka_options(sink: ends.KafkaSink) -> dict[str, str]:
    """Give the options of Spark's writer to a topic."""
    given = {name: str(value) for name, value in sink.options.items()}
    return given | {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic}


@writer.register(ends.PostgresqlSink)
def _(sink: ends.PostgresqlSink, frame: DataFrame, query: str) -> DataStreamWriter:
    return frame.writeStream.foreachBatch(PostgresqlWriter(sink, query).write)


@writer.register(ends.ConsoleSink)
def _(sink: ends.ConsoleSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    found = frame.writeStream.format("console").option("numRows", sink.rows)
    return found.option("truncate", sink.truncate)


@writer.register(ends.NoopSink)
def _(sink: ends.NoopSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    return frame.writeStream.format("noop")
