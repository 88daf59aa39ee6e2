"""The whole path: sales from Kafka, products in PostgreSQL, stores in Delta, facts into Delta."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

import semistream as ss
from semistream.pipeline import read_pipeline
from semistream.pipeline.late.members import complete_members
from semistream.pipeline.run import runner
from support.servers.connectors import require
from support.servers.databases import PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.servers.databases import PostgreSQL
    from support.servers.kafka import Broker

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]

SALES, PRODUCTS, STORES = 3_000, 500, 40
PIPELINE = """
source:
  kind: kafka
  servers: {servers}
  topic: whole-path
  schema: {{sale: long, product_id: long, store: string, quantity: int}}
enrich:
  - master: {url}
    table: products
    key: product_id
    password_env: WHOLE_PATH_PASSWORD
    ttl: 1s
    on: product_id
    how: left
    memory: 8MB
  - master: {folder}/stores
    on: store
    how: left
    memory: 4MB
    surrogate: store_sk
    dimension: {folder}/dimension
columns: {{keep: [sale, product_id, name, price, quantity, store_sk, city]}}
sink: {{kind: delta, path: {folder}/facts}}
checkpoint: {folder}/checkpoint
"""


def products(price: float) -> pa.Table:
    """Every fifth product is not there."""
    keys = [key for key in range(PRODUCTS) if key % 5]
    names, prices = [f"product {key}" for key in keys], [key + price for key in keys]
    return pa.table({"product_id": keys, "name": names, "price": prices})


def stores() -> pa.Table:
    """Half of the stores that sell are known."""
    names = [f"store {number}" for number in range(0, STORES, 2)]
    surrogates = pa.array(range(1, len(names) + 1), pa.int64())
    return pa.table({"store": names, "store_sk": surrogates, "city": [f"{n} city" for n in names]})


def sales(first: int) -> pa.Table:
    numbers = range(first, first + SALES)
    quantity = pa.array([number % 9 for number in numbers], pa.int32())
    keys = [number * 7919 % PRODUCTS for number in numbers]
    at = [f"store {number * 31 % STORES}" for number in numbers]
    columns = {"sale": list(numbers), "product_id": keys, "store": at, "quantity": quantity}
    return pa.table(columns)


def produce(broker: Broker, table: pa.Table) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "acks": "all"})
    for row in table.to_pylist():
        producer.produce("whole-path", json.dumps(row).encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def expected(sold: pa.Table, sold_of: pa.Table, dimension: pa.Table) -> pa.Table:
    """What a batch job makes of some sales, the products and the stores of their time."""
    return duckdb.sql(
        "SELECT sale, s.product_id, name, price, quantity, store_sk, city FROM sold s"
        " LEFT JOIN sold_of p ON s.product_id = p.product_id"
        " LEFT JOIN dimension d ON s.store = d.store"
    ).to_arrow_table()


def test_sales_become_facts_once_with_the_products_and_stores_of_their_time(
    spark: SparkSession,
    broker: Broker,
    postgresql: PostgreSQL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("kafka", "delta")
    monkeypatch.setenv("WHOLE_PATH_PASSWORD", PASSWORD)
    broker.create("whole-path")
    postgresql.load("products", products(0.5), key="product_id")
    dimension = str(tmp_path / "dimension")
    write_deltalake(dimension, stores())
    ss.build_master(dimension, tmp_path / "stores", key="store")
    path = tmp_path / "pipeline.yaml"
    url = postgresql.url(password=False)
    path.write_text(PIPELINE.format(servers=broker.address, url=url, folder=tmp_path))

    def run(part: pa.Table) -> pa.Table:
        produce(broker, part)
        assert runner.run(read_pipeline(path), spark, once=True)
        return DeltaTable(dimension).to_pyarrow_table()

    first, second = sales(0), sales(SALES)
    before = run(first)
    inferred = duckdb.sql("SELECT store FROM before WHERE inferred ORDER BY store").fetchall()
    assert sorted(name for (name,) in inferred) == sorted(
        f"store {number}" for number in range(1, STORES, 2)
    )
    assert len(set(before["store_sk"].to_pylist())) == len(before) == STORES

    # One store's row comes, and prices change; then the stream goes on.
    arrived = spark.createDataFrame([("store 7", "store 7 city")], "store string, city string")
    complete_members(arrived, dimension, key="store", surrogate="store_sk")
    assert ss.sync_master(tmp_path / "stores").upserted >= STORES // 2
    postgresql.execute("UPDATE products SET price = price + 1")
    time.sleep(1.5)  # what is held of products has had its time
    after = run(second)

    kept = {row["store"]: row["store_sk"] for row in before.to_pylist()}
    assert {row["store"]: row["store_sk"] for row in after.to_pylist()} == kept
    cities = [row["city"] for row in after.to_pylist() if row["store"] == "store 7"]
    assert cities == ["store 7 city"]
    wanted = pa.concat_tables(
        [expected(first, products(0.5), before), expected(second, products(1.5), after)]
    )
    facts = DeltaTable(str(tmp_path / "facts")).to_pyarrow_table().select(wanted.column_names)
    assert len(facts) == 2 * SALES == len(wanted)
    assert not duckdb.sql("FROM wanted EXCEPT ALL FROM facts").fetchall()
    assert not duckdb.sql("FROM facts EXCEPT ALL FROM wanted").fetchall()
