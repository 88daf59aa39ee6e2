"""One batch into a sink of a pipeline, by its number: what a foreachBatch does.

Written again under the same number, a batch is there once: in Delta by the number of its
transaction, in PostgreSQL by its ledger, in Parquet by a folder for each batch, which stays.
Kafka has no such means.
"""

from __future__ import annotations

import hashlib
from functools import singledispatch
from typing import TYPE_CHECKING
from uuid import uuid4

from semistream.pipeline.file import ends
from semistream.pipeline.io.postgresql import PostgresqlWriter
from semistream.pipeline.io.sinks import kafka_options, kafka_rows
from semistream.spark.storage import forget, put, sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BATCH_FOLDER", "write_batch", "write_delta"]

BATCH_FOLDER = "semistream_batch"
"""The folders of a Parquet sink whose rows are split: a batch each; readers see it as a column."""
_DRAFTS = ".semistream"  # readers pass over such names


@singledispatch
def write_batch(sink: object, rows: DataFrame, query: str, number: int) -> None:
    """Write a batch to a sink.

    Parameters
    ----------
    sink
        A sink of a pipeline.
    rows
        The batch, of a batch DataFrame.
    query
        What numbers it: the same over restarts, another for another checkpoint.
    number
        Grows from batch to batch; a batch that is written again has the number it had.
    """
    raise NotImplementedError(sink, rows, query, number)


@write_batch.register(ends.DeltaSink)
def _(sink: ends.DeltaSink, rows: DataFrame, query: str, number: int) -> None:
    options = {name: str(value) for name, value in sink.options.items()}
    write_delta(rows, sink.path, query, number, partition_by=sink.partition_by, **options)


def write_delta(
    rows: DataFrame,
    path: str,
    query: str,
    number: int,
    *,
    mode: str = "append",
    partition_by: tuple[str, ...] = (),
    **options: str,
) -> None:
    """Write rows to a Delta table in one transaction, unless it knows this number already."""
    numbered = {"txnAppId": f"semistream {query}", "txnVersion": str(number)}
    writer = rows.write.format("delta").options(**options | numbered).mode(mode)
    writer = writer.partitionBy(*partition_by) if partition_by else writer
    writer.save(path)


@write_batch.register(ends.ParquetSink)
def _(sink: ends.ParquetSink, rows: DataFrame, query: str, number: int) -> None:
    options = {name: str(value) for name, value in sink.options.items()}
    writer, spark = rows.write.options(**options), rows.sparkSession
    writer = writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
    short = hashlib.sha256(query.encode()).hexdigest()[:8]
    folder, name = sink.path.rstrip("/"), f"{BATCH_FOLDER}=q{short}-{number}"
    # Who takes this for cut off, and does it again, must not write into the same folder.
    draft = f"{folder}/{_DRAFTS}/.{uuid4().hex}"
    try:
        writer.parquet(draft)
        put(spark, draft, f"{folder}/{name}")
    finally:
        forget(spark, draft)
        sweep(spark, f"{folder}/{_DRAFTS}")


@write_batch.register(ends.KafkaSink)
def _(sink: ends.KafkaSink, rows: DataFrame, query: str, number: int) -> None:  # noqa: ARG001
    kafka_rows(sink, rows).write.format("kafka").options(**kafka_options(sink)).save()


@write_batch.register(ends.PostgresqlSink)
def _(sink: ends.PostgresqlSink, rows: DataFrame, query: str, number: int) -> None:
    PostgresqlWriter(sink, query).write(rows, number)


@write_batch.register(ends.ConsoleSink)
def _(sink: ends.ConsoleSink, rows: DataFrame, query: str, number: int) -> None:  # noqa: ARG001
    options = {"numRows": sink.rows, "truncate": sink.truncate}
    rows.write.format("console").options(**options).mode("append").save()


@write_batch.register(ends.NoopSink)
def _(sink: ends.NoopSink, rows: DataFrame, query: str, number: int) -> None:  # noqa: ARG001
    rows.write.format("noop").mode("overwrite").save()
