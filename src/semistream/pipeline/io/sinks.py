"""Sinks of pipelines: how each writes a stream, and one numbered batch.

A sink has two functions here: `stream_writer` returns Spark's writer of a stream; `write_batch`
writes one batch by its number, which a ``foreachBatch`` does where rows are split. Written again
under the same number, a batch is there once: in Delta by the number of its transaction, in
PostgreSQL by its ledger, in Parquet by a folder for each batch, which stays. Kafka has no such
means. The settings of a sink are in `semistream.pipeline.file.ends`.
"""

from __future__ import annotations

import hashlib
from functools import singledispatch
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as sf

from semistream.pipeline.file import ends
from semistream.pipeline.io.delta import write_delta
from semistream.pipeline.io.postgresql import PostgresqlWriter
from semistream.spark.storage import delete, delete_old, publish_folder
from semistream.spark.types import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["BATCH_FOLDER", "stream_writer", "write_batch"]

BATCH_FOLDER = "semistream_batch"
"""The folders of a Parquet sink whose rows are split: a batch each; readers see it as a column."""
_DRAFTS = ".semistream"  # readers skip such names


@singledispatch
def stream_writer(sink: object, frame: DataFrame, query: str) -> DataStreamWriter:
    """Return a writer of this DataFrame to a sink.

    ``query`` is an id that stays the same over restarts, and is another for another checkpoint.
    """
    raise NotImplementedError(sink, frame, query)


@singledispatch
def write_batch(sink: object, rows: DataFrame, query: str, number: int) -> None:
    """Write a batch to a sink.

    ``query`` is as for `stream_writer`; ``number`` grows from batch to batch, and a batch that is
    written again has the number it had.
    """
    raise NotImplementedError(sink, rows, query, number)


def _options(sink: ends.ParquetSink | ends.DeltaSink | ends.KafkaSink) -> dict[str, str]:
    return {name: str(value) for name, value in sink.options.items()}


@stream_writer.register(ends.ParquetSink)
@stream_writer.register(ends.DeltaSink)
def _(sink: ends.ParquetSink | ends.DeltaSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    writer = frame.writeStream.format(sink.kind).options(**_options(sink)).option("path", sink.path)
    return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer


@write_batch.register(ends.DeltaSink)
def _(sink: ends.DeltaSink, rows: DataFrame, query: str, number: int) -> None:
    write_delta(rows, sink.path, query, number, partition_by=sink.partition_by, **_options(sink))


@write_batch.register(ends.ParquetSink)
def _(sink: ends.ParquetSink, rows: DataFrame, query: str, number: int) -> None:
    writer, spark = rows.write.options(**_options(sink)), rows.sparkSession
    writer = writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
    short = hashlib.sha256(query.encode()).hexdigest()[:8]
    folder, name = sink.path.rstrip("/"), f"{BATCH_FOLDER}=q{short}-{number}"
    # A driver that takes this one for dead, and repeats the batch, must not write into its folder.
    draft = f"{folder}/{_DRAFTS}/.{uuid4().hex}"
    try:
        writer.parquet(draft)
        publish_folder(spark, draft, f"{folder}/{name}")
    finally:
        delete(spark, draft)
        delete_old(spark, f"{folder}/{_DRAFTS}")


def _kafka_rows(sink: ends.KafkaSink, frame: DataFrame) -> DataFrame:
    """Return rows as Kafka has them: a JSON object each, with a key if there is one."""
    columns = [sf.col(quote(name)) for name in frame.columns]
    # Without the option a null would be left out, and rows of one table have different fields.
    value = sf.to_json(sf.struct(*columns), {"ignoreNullFields": "false"}).alias("value")
    key = [sf.col(quote(sink.key)).cast("string").alias("key")] if sink.key else []
    return frame.select(*key, value)


def _kafka_options(sink: ends.KafkaSink) -> dict[str, str]:
    return _options(sink) | {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic}


@stream_writer.register(ends.KafkaSink)
def _(sink: ends.KafkaSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    writer = _kafka_rows(sink, frame).writeStream.format("kafka")
    return writer.options(**_kafka_options(sink))


@write_batch.register(ends.KafkaSink)
def _(sink: ends.KafkaSink, rows: DataFrame, query: str, number: int) -> None:  # noqa: ARG001
    _kafka_rows(sink, rows).write.format("kafka").options(**_kafka_options(sink)).save()


@stream_writer.register(ends.PostgresqlSink)
def _(sink: ends.PostgresqlSink, frame: DataFrame, query: str) -> DataStreamWriter:
    return frame.writeStream.foreachBatch(PostgresqlWriter(sink, query).write)


@write_batch.register(ends.PostgresqlSink)
def _(sink: ends.PostgresqlSink, rows: DataFrame, query: str, number: int) -> None:
    PostgresqlWriter(sink, query).write(rows, number)


@stream_writer.register(ends.ConsoleSink)
def _(sink: ends.ConsoleSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    options = {"numRows": sink.rows, "truncate": sink.truncate}
    return frame.writeStream.format("console").options(**options)


@write_batch.register(ends.ConsoleSink)
def _(sink: ends.ConsoleSink, rows: DataFrame, query: str, number: int) -> None:  # noqa: ARG001
    options = {"numRows": sink.rows, "truncate": sink.truncate}
    rows.write.format("console").options(**options).mode("append").save()


@stream_writer.register(ends.NoopSink)
def _(sink: ends.NoopSink, frame: DataFrame, query: str) -> DataStreamWriter:  # noqa: ARG001
    return frame.writeStream.format("noop")


@write_batch.register(ends.NoopSink)
def _(sink: ends.NoopSink, rows: DataFrame, query: str, number: int) -> None:  # noqa: ARG001
    rows.write.format("noop").mode("overwrite").save()
