"""From Kafka, enriched, into Delta and to Kafka: nothing lost, nothing doubled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from pyspark.sql.functions import col, from_json, struct, to_json

from semistream import build_master
from semistream.api import enrich
from support.servers.connectors import require

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.servers.kafka import Broker

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]

ROWS = 20_000
SALE = "sale long, product_id long, quantity int"


@pytest.fixture
def products(tmp_path: Path) -> pa.Table:
    """Every third product is not in the master."""
    keys = [key for key in range(3_000) if key % 3]
    names = [f"product {key}" for key in keys]
    table = pa.table({"product_id": keys, "product_sk": [key * 10 for key in keys], "name": names})
    build_master(table, tmp_path / "master", key="product_id")
    return table


def sales(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    quantity = pa.array([number % 9 for number in numbers], pa.int32())
    keys = [number * 7919 % 3_000 for number in numbers]
    return pa.table({"sale": list(numbers), "product_id": keys, "quantity": quantity})


def produce(broker: Broker, topic: str, table: pa.Table) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "acks": "all"})
    for row in table.to_pylist():
        producer.produce(topic, json.dumps(row).encode(), str(row["sale"]).encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def stream(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS // 4)
        .load()
    )
    row = from_json(col("value").cast("string"), SALE)
    return source.select(row.alias("row"), "partition", "offset").select(
        "row.*", "partition", "offset"
    )


def enriched(spark: SparkSession, broker: Broker, topic: str, folder: Path) -> DataFrame:
    source = stream(spark, broker, topic)
    return enrich(source, folder / "master", on="product_id", how="left", memory="4MB")


def run(frame: DataFrame, sink: str, folder: Path, **options: str) -> None:
    """Run a query over what is there, and end it; the next one goes on from its checkpoint."""
    query = start(frame, sink, folder, **options)
    assert query.awaitTermination(180)


def start(frame: DataFrame, sink: str, folder: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format(sink).options(**options).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def stop_midway(query: StreamingQuery) -> None:
    """Stop it after its first micro-batch, in the middle of another."""
    while not query.recentProgress and query.isActive:
        query.awaitTermination(0.1)
    query.stop()


def same(got: pa.Table, stream_rows: pa.Table, products: pa.Table) -> bool:
    """Compare whole contents with DuckDB's join, as multisets."""
    columns = "sale, product_id, quantity, product_sk, name"
    expected = duckdb.sql(
        "SELECT sale, s.product_id, quantity, product_sk, name"
        " FROM stream_rows s LEFT JOIN products m ON s.product_id = m.product_id"
    ).to_arrow_table()
    less = duckdb.sql(f"FROM expected EXCEPT ALL SELECT {columns} FROM got").fetchall()  # noqa: S608
    more = duckdb.sql(f"SELECT {columns} FROM got EXCEPT ALL FROM expected").fetchall()  # noqa: S608
    return not less and not more and len(expected) == len(got)


def test_every_record_is_in_delta_once_after_restarts_of_query_and_broker(
    spark: SparkSession, broker: Broker, products: pa.Table, tmp_path: Path
) -> None:
    require("kafka", "delta")
    broker.create("sales-to-delta")
    target = {"path": str(tmp_path / "table")}
    produce(broker, "sales-to-delta", sales(0, ROWS))
    frame = enriched(spark, broker, "sales-to-delta", tmp_path)
    stop_midway(start(frame, "delta", tmp_path, **target))
    produce(broker, "sales-to-delta", sales(ROWS, ROWS))
    broker.kill()
    broker.start()
    run(enriched(spark, broker, "sales-to-delta", tmp_path), "delta", tmp_path, **target)
    written = DeltaTable(target["path"]).to_pyarrow_table()
    assert same(written, sales(0, 2 * ROWS), products)
    origins = written.select(["partition", "offset"]).to_pylist()
    assert len({tuple(origin.values()) for origin in origins}) == 2 * ROWS


def test_every_record_goes_out_to_kafka_with_the_offset_it_came_from(
    spark: SparkSession, broker: Broker, products: pa.Table, tmp_path: Path
) -> None:
    require("kafka")
    for topic in ("sales-in", "sales-out"):
        broker.create(topic)
    produce(broker, "sales-in", sales(0, ROWS))
    options = {"kafka.bootstrap.servers": broker.address, "topic": "sales-out"}
    frame = enriched(spark, broker, "sales-in", tmp_path)
    records = frame.select(
        col("sale").cast("string").alias("key"), to_json(struct("*")).alias("value")
    )
    stop_midway(start(records, "kafka", tmp_path, **options))
    run(records, "kafka", tmp_path, **options)
    rows = consume(broker, "sales-out")
    once = {(row["partition"], row["offset"]): row for row in rows}
    fields = ("sale", "product_id", "quantity", "product_sk", "name")
    got = pa.Table.from_pylist([{name: row.get(name) for name in fields} for row in once.values()])
    assert same(got, sales(0, ROWS), products)
    assert all(once[row["partition"], row["offset"]] == row for row in rows)


def consume(broker: Broker, topic: str) -> list[dict[str, object]]:
    """Read a topic from its beginning to the end that it has now."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "test"})
    try:
        parts = [TopicPartition(topic, number, 0) for number in (0, 1)]
        ends = [consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts]
        consumer.assign(parts)
        messages = []
        while len(messages) < sum(ends):
            messages.extend(consumer.consume(1_000, 5))
        return [json.loads(message.value()) for message in messages]
    finally:
        consumer.close()
