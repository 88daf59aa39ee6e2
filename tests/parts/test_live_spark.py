"""Enrichment from real databases on Spark: what comes out, what is held, what goes wrong."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import semistream as ss
from semistream.master.database.feeds.postgresql import trigger_sql
from semistream.pipeline import PipelineError, read_pipeline
from semistream.pipeline.run.query import prepare, start
from support import wait_for
from support.frames import rows_of
from support.matrix import ALL
from support.servers.databases import PASSWORD
from support.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers.databases import PostgreSQL, Server

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("spark")]

KEYS = 3000
PRODUCTS = pa.table(
    {
        "product_id": pa.array(np.arange(KEYS) * 2),
        "name": pa.array([None if i % 50 == 7 else f"product {i}" for i in range(KEYS)]),
        "price": pa.array(np.arange(KEYS) / 4),
        "brand": pa.array(np.arange(KEYS) % 40, pa.int32()),
    }
)


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    found.load("products", PRODUCTS, key="product_id")
    return found


def sales(rows: int = 4000, seed: int = 1) -> pa.Table:
    """Keys by a skewed law, odd ones absent, a few null."""
    rng = np.random.default_rng(seed)
    keys = np.minimum(rng.zipf(1.3, rows), 2 * KEYS + 50)
    return pa.table(
        {
            "sale": pa.array(np.arange(rows) + seed * 10**6),
            "product_id": pa.array(keys, mask=rng.random(rows) < 0.01),
        }
    )


def opened(server: Server, **options: Any) -> Any:
    return ss.open_master(
        server.url(options.pop("port", None)), table="products", key="product_id", **options
    )


def test_joins_agree_with_sparks_own(spark: SparkSession, server: Server) -> None:
    stream = spark.createDataFrame(sales()).repartition(3).cache()
    products, master = spark.createDataFrame(PRODUCTS), opened(server, ttl=60)
    ways = [("inner", "keys"), ("left", "keys"), ("semi", "keys"), ("anti", "keys")]
    for how, transfer in [*ways, ("inner", "rows"), ("left", "rows")]:
        options = {"how": how, "transfer": transfer, "memory": "4MB", "check": how == "inner"}
        mine = ss.enrich(stream, master, on="product_id", **options)
        theirs = stream.join(products, "product_id", how).select(*mine.columns)
        assert rows_of(mine) == rows_of(theirs), (how, transfer)


def test_keys_that_come_to_have_several_rows_are_told(spark: SparkSession, server: Server) -> None:
    master = opened(server)
    server.load("products", pa.concat_tables([PRODUCTS, PRODUCTS.slice(0, 1)]))
    stream = spark.createDataFrame([(0,), (2,)], "product_id long")
    mine = ss.enrich(stream, master, on="product_id", transfer="keys", check=False)
    with pytest.raises(Exception, match=r"products: keys .* several rows .* transfer='rows'"):
        mine.collect()


class Stream:
    """A stream of files, one a batch, into a folder a batch: what came out can be counted."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int) -> None:
        self._spark, self._folder = spark, folder
        (folder / "sales").mkdir()
        tables = [sales(1000, seed) for seed in range(1, batches + 1)]
        for number, table in enumerate(tables):
            pq.write_table(table, folder / "sales" / f"{number}.parquet")
        self.sales = pa.concat_tables(tables)

    def run(self, master: Any, before: Mapping[int, Callable[[], None]], **options: Any) -> None:
        """Go on to the end; before a batch is written, do what is said for its number."""
        reader = self._spark.readStream.schema("sale long, product_id long")
        df = reader.option("maxFilesPerTrigger", 1).parquet(str(self._folder / "sales"))
        settings = {"how": "left", "memory": "4MB", "check": False} | options
        df = ss.enrich(df, master, on="product_id", **settings)
        self.plan = df._jdf.queryExecution().toString()

        def write(batch: DataFrame, number: int) -> None:
            before.get(number, lambda: None)()
            batch.write.mode("overwrite").parquet(str(self._folder / "out" / f"batch={number}"))

        writer = df.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        query.awaitTermination()

    def written(self, batch: int | None = None) -> list[tuple[Any, ...]]:
        out = self._spark.read.parquet(str(self._folder / "out"))
        return rows_of((out if batch is None else out.where(f"batch = {batch}")).drop("batch"))

    def wanted(self) -> list[tuple[Any, ...]]:
        stream, products = map(self._spark.createDataFrame, (self.sales, PRODUCTS))
        joined = stream.join(products, "product_id", "left")
        return rows_of(joined.select("sale", "product_id", "name", "price", "brand"))


def down_for(server: Server, seconds: float) -> None:
    """Stop a server, and start it again while others wait for it."""
    server.kill()
    threading.Timer(seconds, server.start).start()


def test_a_server_that_falters_loses_and_doubles_nothing(
    spark: SparkSession, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = 41 if ALL else 5
    stream = Stream(spark, tmp_path, batches)
    with Proxy(server.port) as proxy:
        faults = [
            lambda: setattr(proxy, "delay", 0.1),
            lambda: (setattr(proxy, "delay", 0.0), server.restart()),  # resting ones are dead
            lambda: proxy.cut(after=3000),  # in the middle of an answer
            lambda: down_for(server, 1.0),
        ]
        before = {number: faults[number % 4] for number in range(1, batches)}
        stream.run(opened(server, port=proxy.port, ttl=0.01), before)
        assert proxy.accepted > 2
    assert stream.written() == stream.wanted()
    # The password is nowhere: not in the plan, not in what Spark writes down, not in a log.
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    texts = [stream.plan, caplog.text, *(path.read_text("latin-1") for path in files)]
    assert files
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert not any(secret in text for text in texts)


def test_a_server_that_is_gone_is_an_error_and_no_miss(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, batches=3)
    master = opened(server, ttl=0.01, retry=0.5)
    with pytest.raises(StreamingQueryException, match="No row was taken for absent") as error:
        stream.run(master, {1: server.kill})
    assert PASSWORD not in str(error.value)
    assert quote(PASSWORD, safe="") not in str(error.value)
    server.start()
    stream.run(master, {})  # goes on with the batch that failed
    assert stream.written() == stream.wanted()


def test_a_table_that_is_altered_is_an_error_that_says_so(
    spark: SparkSession, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    for number, change in enumerate(
        ["DROP COLUMN brand", "ALTER COLUMN brand TYPE text USING 'x' || brand"]
    ):
        postgresql.load("products", PRODUCTS, key="product_id")
        folder = tmp_path / str(number)
        folder.mkdir()
        stream = Stream(spark, folder, batches=2)
        alter = f"ALTER TABLE products {change}"
        with pytest.raises(StreamingQueryException, match=r"brand|x\d+"):
            stream.run(opened(postgresql, ttl=0.01), {1: lambda sql=alter: postgresql.execute(sql)})
        assert len(stream.written()) == 1000


def test_a_feed_brings_changes_at_once_and_rows_stay_warm(
    spark: SparkSession, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    postgresql.load("products", PRODUCTS, key="product_id")
    postgresql.execute(trigger_sql("products", "product_id"))
    stream, seen = Stream(spark, tmp_path, batches=4), []
    ss.watch(spark, seen.append)

    def update() -> None:
        postgresql.execute("UPDATE products SET price = -1 WHERE product_id = 2")
        time.sleep(1)

    master = opened(postgresql, ttl=3600, feed="notify")
    stream.run(master, {1: lambda: time.sleep(3), 3: update})
    prices = [{row[3] for row in stream.written(n) if row[1] == 2} for n in range(4)]
    assert prices == [{0.25}, {0.25}, {0.25}, {-1.0}]
    wait_for("metrics", lambda: len(seen) == 4)
    for batch in seen:
        tasks = sum(n for name, n in batch.memory.items() if not name.startswith("host "))
        assert 2 * tasks + sum(batch.memory.values()) - tasks <= batch.budget
    assert seen[2].counters["cache_hits"] > 0
    assert seen[3].counters["fetched"] < seen[0].counters["fetched"]


PIPELINE = """\
source: {{kind: files, path: sales, format: parquet}}
enrich:
  - master: {url}
    table: {table}
    key: product_id
    ttl: 10m
    password_env: SHOP_PASSWORD
    on: product_id
    how: left
    memory: 4MB
sink: {{kind: parquet, path: out}}
"""


def test_a_pipeline_takes_the_password_from_the_environment(
    spark: SparkSession, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    stream = Stream(spark, tmp_path, batches=1)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=server.url(password=False), table="product"))
    with pytest.raises(PipelineError, match=r"yaml:3:13: enrich\[0\].master.*no such table"):
        prepare(read_pipeline(file), spark)
    file.write_text(PIPELINE.format(url=server.url(password=False), table="products"))
    pipeline = read_pipeline(file)
    assert pipeline.enrich[0].name == "products"
    start(pipeline, spark, once=True).awaitTermination()
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == stream.wanted()
    texts = [path.read_text("latin-1") for path in tmp_path.rglob("*.json")]
    assert texts
    assert not any(PASSWORD in text for text in [*texts, repr(pipeline)])


def test_a_pipelines_mistakes_about_databases_have_lines(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    text = PIPELINE.format(url="postgresql://me:sesame@here/shop", table="products")
    file.write_text(text.replace("    key: product_id\n", "").replace("10m", "soon"))
    with pytest.raises(PipelineError) as error:
        read_pipeline(file)
    assert ":5:10: enrich[0].ttl must be a time" in str(error.value)
    file.write_text(text.replace("    key: product_id\n", ""))
    with pytest.raises(PipelineError) as error:
        read_pipeline(file)
    assert ":3:13: enrich[0].master holds a password" in str(error.value)
    assert "enrich[0].key is missing" in str(error.value)
    assert "sesame" not in str(error.value)
    file.write_text(PIPELINE.format(url="products.master", table="products"))
    with pytest.raises(PipelineError, match="table is for a master in a database"):
        read_pipeline(file)
