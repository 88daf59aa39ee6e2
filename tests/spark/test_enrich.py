from __future__ import annotations

import datetime as dt
import logging
import os
import urllib.error
import urllib.request
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import BudgetError, MasterError, OptionError, SchemaError
from semistream.spark.cluster.context_state import state_of
from semistream.spark.enrich import enrichment
from semistream.spark.lookup.route import partitions_of
from semistream.testing.data import text
from semistream.workloads import Zipf
from support.frames import rows_of, rows_of_each

pytestmark = pytest.mark.xdist_group("spark")

ROWS, KEYS = 6_000, 2_000
WAYS = [
    {"transfer": "none"},
    {"transfer": "keys"},
    {"transfer": "rows"},
    {"transfer": "keys", "partition": "key"},
    {"transfer": "rows", "partition": "key", "read": "direct"},
]


def products(keys=KEYS, duplicates=1) -> pa.Table:
    ids = np.repeat(np.arange(keys) * 2, duplicates)
    return pa.table(
        {
            "product_id": ids,
            "surrogate": np.arange(len(ids)) + 10**9,
            "name": text(len(ids), 30),
            "units": pa.array(np.arange(len(ids)) % 7, pa.uint32()),
            "added": pa.array([dt.date(2020, 1, 1 + i % 28) for i in range(len(ids))]),
            "price": pa.array([Decimal(i) / 100 for i in range(len(ids))], pa.decimal128(12, 2)),
        }
    )


def sales(rows=ROWS, keys=KEYS, seed=0) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = Zipf(keys).sample(rows, rng) * 2
    ids[rng.random(rows) < 0.1] += 1  # absent
    null = rng.random(rows) < 0.05
    return pa.table({"sale": np.arange(rows), "product_id": pa.array(ids, mask=null)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("enrich")


@pytest.fixture(scope="module")
def master(folder):
    return ss.build_master(products(), folder / "products", key="product_id", page_bytes="8KB")


@pytest.fixture(scope="module")
def several(folder):
    table = products(duplicates=3)
    return ss.build_master(table, folder / "several", key="product_id", page_bytes="8KB")


@pytest.fixture(scope="module")
def files(folder):
    """The stream: six files."""
    path = folder / "sales"
    path.mkdir()
    for i, batch in enumerate(sales().to_batches(max_chunksize=ROWS // 6)):
        pq.write_table(pa.Table.from_batches([batch]), path / f"{i}.parquet")
    return str(path)


def reference(stream: pa.Table, table: pa.Table, how: str) -> list[tuple]:
    names = ", ".join(f"m.{name}" for name in table.column_names if name != "product_id")
    columns = f"s.*, {names}" if how in {"left", "inner"} else "s.*"
    connection = duckdb.connect()
    connection.register("s", stream)
    connection.register("m", table)
    sql = f"SELECT {columns} FROM s {how} JOIN m ON s.product_id = m.product_id"  # noqa: S608
    return sorted(connection.sql(sql).fetchall(), key=repr)


def streamed(spark, files, enrich, tmp_path, per_trigger=2):
    """Run a stream of the files to its end into Parquet; give what was written, and progress."""
    source = spark.readStream.schema("sale long, product_id long")
    df = source.option("maxFilesPerTrigger", per_trigger).parquet(files)
    query = (
        enrich(df)
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    return spark.read.parquet(str(tmp_path / "out")), query.recentProgress


# -- the same rows as the reference --------------------------------------------------------


HOW = ["left", "inner", "semi", "anti"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_batch_has_the_rows_of_the_reference(spark, master, files, way):
    df, wish = spark.read.parquet(files), {"memory": "4MB", "check": False} | way
    out = {how: ss.enrich(df, master.path, on="product_id", how=how, **wish) for how in HOW}
    for how, rows in rows_of_each(out).items():
        assert rows == reference(sales(), products(), how), how


@pytest.mark.parametrize("way", [{}, {"read": "direct", "memory": "1MB"}], ids=["mapped", "direct"])
def test_several_rows_a_key(spark, several, files, way):
    df, wish = spark.read.parquet(files), {"memory": "4MB", "check": False} | way
    out = {how: ss.enrich(df, several.path, on="product_id", how=how, **wish) for how in HOW}
    for how, rows in rows_of_each(out).items():
        assert rows == reference(sales(), products(duplicates=3), how), how


def test_a_master_without_rows_matches_nothing(spark, folder, files):
    """As on the first day of a warehouse; executors are looked at, as by default."""
    empty = products().slice(0, 0)
    path = ss.build_master(empty, folder / "empty", key="product_id").path
    df, wish = spark.read.parquet(files), {"on": "product_id", "how": "left", "memory": "4MB"}
    out = {str(way): ss.enrich(df, path, **wish, **way) for way in [{}, *WAYS]}
    for way, rows in rows_of_each(out).items():
        assert rows == reference(sales(), empty, "left"), way


def test_a_stream_has_the_rows_of_the_reference(spark, master, files, tmp_path):
    out, progress = streamed(
        spark, files, lambda df: ss.enrich(df, master, on="product_id", how="left"), tmp_path
    )
    assert rows_of(out) == reference(sales(), products(), "left")
    assert len([p for p in progress if p.numInputRows]) == 3


def test_answers_are_in_order_although_rows_wait(spark, master, files):
    """Direct reads: rows wait for pages, and a scalar function must answer in order."""
    df = spark.read.parquet(files).coalesce(1)
    wish = {"read": "direct", "transfer": "keys", "partition": "none", "memory": "1MB"}
    select = ["surrogate"]
    out = ss.enrich(df, master.path, on="product_id", how="left", select=select, **wish)
    assert [row.sale for row in out.collect()] == [row.sale for row in df.collect()]
    wanted = {row[0]: row[2] for row in reference(sales(), products(), "left")}
    assert {row.sale: row.surrogate for row in out.collect()} == wanted


def test_two_enrichments_in_a_row(spark, master, several, files, tmp_path):
    def both(df):
        """Twice with the same master, and once with another."""
        some = ss.enrich(df, master, on="product_id", how="semi", memory="4MB")
        first = ss.enrich(some, master, on="product_id", select=["surrogate"], memory="4MB")
        return ss.enrich(
            first, several, on="product_id", how="left", prefix="m_", select=["units"], memory="4MB"
        )

    out, _ = streamed(spark, files, both, tmp_path)
    sql = """SELECT s.*, m.surrogate, n.units FROM s JOIN m USING (product_id)
             LEFT JOIN n ON n.product_id = s.product_id"""
    c = duckdb.connect()
    c.register("s", sales())
    c.register("m", products())
    c.register("n", products(duplicates=3))
    assert rows_of(out) == sorted(c.sql(sql).fetchall(), key=repr)
    assert out.columns == ["sale", "product_id", "surrogate", "m_units"]


def test_two_enrichments_of_a_micro_batch_have_names_that_differ_and_stay(
    spark, master, files, monkeypatch
):
    for attempt in (("query", "0", "run"), ("query", "1", "run"), ("query", "1", "next run")):
        monkeypatch.setattr(enrichment, "attempt_of_driver", lambda _, now=attempt: now)
        assert [state_of(spark).unique_name(n, attempt) for n in "aba"] == ["a", "b", "a_2"]
    wish = {"on": "product_id", "memory": "4MB", "check": False}
    some = ss.enrich(spark.read.parquet(files), master, how="semi", **wish)
    assert rows_of(ss.enrich(some, master, **wish)) == reference(sales(), products(), "inner")


def test_composite_keys_of_many_types(spark, folder):
    n = 300
    moments = pa.array([dt.datetime(2024, 1, 1 + i % 28, tzinfo=dt.UTC) for i in range(n)])
    keys = {
        "shop": pa.array([f"shop {i % 17}" for i in range(n)]),
        "day": pa.array([dt.date(2024, 1, 1 + i % 28) for i in range(n)]),
        "at": moments.cast(pa.timestamp("us", "UTC")),
        "amount": pa.array([Decimal(i) for i in range(n)], pa.decimal128(10, 2)),
    }
    table = pa.table({**keys, "tags": [[str(i), None] for i in range(n)], "rank": range(n)})
    master = ss.build_master(table, folder / "composite", key=list(keys))
    df = spark.createDataFrame(pa.table({**keys, "event": range(n)}).slice(0, 200))
    wish = {"on": list(keys), "memory": "4MB", "check": False}
    out = {
        transfer: ss.enrich(df, master, transfer=transfer, **wish).select("event", "rank", "tags")
        for transfer in ("keys", "rows")
    }
    wanted = sorted(((i, i, [str(i), None]) for i in range(200)), key=repr)
    for transfer, rows in rows_of_each(out).items():
        assert rows == wanted, transfer


def test_other_names_and_names_with_dots(spark, master):
    df = spark.createDataFrame([(1, 4), (2, 5)], "`sale.number` int, `the.key` long")
    wish = {"select": ["surrogate"], "memory": "4MB", "check": False}
    on = {"the.key": "product_id"}
    out = {str(way): ss.enrich(df, master.path, on=on, **wish, **way) for way in WAYS}
    for way, rows in rows_of_each(out).items():
        assert rows == [(1, 4, 10**9 + 2)], way
        assert out[way].columns == ["sale.number", "the.key", "surrogate"]


@pytest.mark.parametrize("transfer", ["keys", "rows"])
def test_types_that_spark_has_not(spark, folder, transfer):
    at = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))
    table = pa.table({"id": [1], "at": at, "n": pa.array([2**63], pa.uint64()), "b": [b"x"]})
    table = table.set_column(3, "b", pa.array([b"1234"], pa.binary(4)))
    master = ss.build_master(table, folder / f"types-{transfer}", key="id")
    df = spark.createDataFrame([(1,)], "id long")
    out = ss.enrich(df, master, on="id", transfer=transfer, memory="4MB", check=False)
    micros = dt.datetime(2023, 11, 14, 22, 13, 20, 123456)
    assert [tuple(row) for row in out.collect()] == [(1, micros, Decimal(2**63), b"1234")]


def test_no_column_wanted(spark, master, files):
    df = spark.read.parquet(files)
    inner = ss.enrich(df, master, on="product_id", select=[], memory="4MB", check=False)
    left = ss.enrich(df, master, on="product_id", how="left", select=[], memory="4MB", check=False)
    assert rows_of(inner) == reference(sales(), products(), "semi")
    assert left.count() == ROWS


# -- what survives --------------------------------------------------------------------------


@pytest.mark.parametrize("transfer", ["keys", "rows"])
def test_watermarks_and_metadata_survive(spark, master, folder, tmp_path, transfer):
    path = folder / f"events-{transfer}"
    path.mkdir()
    for minute in range(0, 60, 10):
        at = dt.datetime(2024, 1, 1, 0, minute)
        pq.write_table(
            pa.table({"at": pa.array([at] * 2, pa.timestamp("us", "UTC")), "product_id": [0, 2]}),
            path / f"{minute:02}.parquet",
        )
        os.utime(path / f"{minute:02}.parquet", (minute, minute))  # the order of the stream
    source = spark.readStream.schema("at timestamp, product_id long").option(
        "maxFilesPerTrigger", 1
    )
    df = source.parquet(str(path)).withWatermark("at", "5 minutes")
    df = df.withMetadata("product_id", {"comment": "natural key"})
    out = ss.enrich(
        df, master, on="product_id", select=["surrogate"], transfer=transfer, memory="4MB"
    )
    assert out.schema["product_id"].metadata == {"comment": "natural key"}
    counts = out.groupBy("at").count()
    query = (
        counts.writeStream.format("memory")
        .queryName(f"counts_{transfer}")
        .trigger(availableNow=True)
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    done = spark.table(f"counts_{transfer}").collect()
    # Only what the watermark has passed is given out in append mode: without one, none were.
    assert sorted(row["count"] for row in done) == [2] * len(done)
    assert 4 <= len(done) < 6


# -- routing --------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_no_partition_gets_much_more_than_its_share(skew):
    keys, partitions = 100_000, 8
    rng = np.random.default_rng(0)
    load = np.zeros(partitions)
    for _ in range(20):
        drawn = Zipf(keys, skew, scatter=False).sample(10_000, rng)  # hot keys share pages
        load += np.bincount(partitions_of((drawn // 100).astype(np.int32), partitions))
    assert load.max() < 1.25 * np.median(load)


def test_a_cold_page_has_one_partition_in_every_batch():
    pages = np.random.default_rng(1).integers(0, 5_000, 10_000).astype(np.int32)
    first, second = partitions_of(pages, 8), partitions_of(pages[::-1].copy(), 8)[::-1]
    assert (first == second).all()


# -- copies on the host ----------------------------------------------------------------------


def test_hosts_keep_copies(spark, folder, files, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = folder / "copied"
    ss.build_master(products(), source, key="product_id")
    df = spark.read.parquet(files)
    wish = {"on": "product_id", "memory": "4MB", "localize": True}
    out = ss.enrich(df, source.as_uri(), how="left", **wish)
    assert rows_of(out) == reference(sales(), products(), "left")
    ss.build_master(products(keys=10), source, key="product_id")
    monkeypatch.setattr("semistream.spark.lookup.copies._TTL", 0)
    with pytest.raises(BudgetError, match="localize="):
        ss.enrich(df, source.as_uri(), **{**wish, "localize": "4KB"})


# -- metrics ----------------------------------------------------------------------------------


def test_metrics_of_every_batch(spark, master, files, tmp_path, caplog):
    seen = []
    with caplog.at_level(logging.INFO, "semistream.spark.metrics"):
        ss.watch(spark, prometheus=0, address="0.0.0.0")  # noqa: S104 - for the moment of a test
        assert "served on 0.0.0.0, port" in caplog.messages[-1]
        ss.watch(spark, seen.append, prometheus=0)
        assert "served on 127.0.0.1, port" in caplog.messages[-1]
        port = int(caplog.messages[-1].split()[-1])
        _, progress = streamed(
            spark,
            files,
            lambda df: ss.enrich(df, master, on="product_id", name="watched", memory="4MB"),
            tmp_path,
        )
        _until(lambda: len([m for m in seen if m.name == "watched"]) == 3)
    mine = [m for m in seen if m.name == "watched"]
    matched = len(reference(sales(), products(), "inner"))
    assert sum(m.rows for m in mine) == ROWS
    assert sum(m.absent + m.null_keys for m in mine) == ROWS - matched
    assert sum(m.null_keys for m in mine) == sales()["product_id"].null_count
    assert all(0 < sum(m.memory.values()) <= m.budget == 4 << 20 for m in mine)
    assert len([line for line in caplog.messages if "watched" in line and "rows" in line]) == 3
    observed = [p.observedMetrics["semistream.watched"] for p in progress if p.numInputRows]
    assert sum(o.rows for o in observed) == ROWS
    assert sum(o.matched for o in observed) == matched
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.2:{port}")  # another address of this machine
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}").read().decode()
    assert f'what="rows_in"}} {float(ROWS)}' in page
    assert "# HELP semistream_batch_seconds Duration of the last micro-batch." in page


def _until(condition, seconds=30):
    import time  # noqa: PLC0415

    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


# -- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "error", "told"),
    [
        ({"transfer": "key"}, OptionError, "choose one of: auto, keys, none, rows"),
        ({"partition": "hash"}, OptionError, "choose one of: auto, key, none"),
        ({"how": "full"}, OptionError, "never ends"),
        ({"algorithm": "meshjion"}, OptionError, "Did you mean 'meshjoin'"),
        ({"memory": "8KB"}, BudgetError, "the least that works"),
        ({"on": "sale_id"}, SchemaError, "has no column 'sale_id'"),
        ({"select": ["prize"]}, SchemaError, "Did you mean 'price'"),
        ({"read": "mmapped"}, OptionError, "Did you mean 'mapped'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(spark, master, files, wish, error, told):
    with pytest.raises(error, match=told):
        ss.enrich(spark.read.parquet(files), master.path, **{"on": "product_id"} | wish)


def test_keys_cannot_have_several_answers(spark, several, files):
    with pytest.raises(OptionError, match="several rows in this master"):
        ss.enrich(spark.read.parquet(files), several, on="product_id", transfer="keys")


def test_a_key_of_another_type(spark, master):
    df = spark.createDataFrame([("a",)], "product_id string")
    with pytest.raises(SchemaError, match="cast the stream's column"):
        ss.enrich(df, master, on="product_id")


def test_names_that_spark_cannot_tell_apart(spark, master):
    df = spark.createDataFrame([(1, "x")], "product_id long, Name string")
    with pytest.raises(SchemaError, match="cannot tell the columns 'Name' and 'name' apart"):
        ss.enrich(df, master, on="product_id")


def test_a_budget_too_small_for_answers_in_order_is_told_before(spark, master, files):
    wish = {"transfer": "keys", "memory": "30KB", "check": False}
    with pytest.raises(BudgetError, match="the least that works"):
        ss.enrich(spark.read.parquet(files), master.path, on="product_id", **wish)


def test_a_type_that_spark_lacks(spark, folder):
    table = pa.table({"id": [1], "at": pa.array([dt.time(1)], pa.time32("s"))})
    master = ss.build_master(table, folder / "times", key="id")
    df = spark.createDataFrame([(1,)], "id long")
    with pytest.raises(SchemaError, match="leave it out with select="):
        ss.enrich(df, master, on="id")
    assert ss.enrich(df, master, on="id", select=[]).count() == 1


def test_no_master(spark, files, tmp_path):
    with pytest.raises(MasterError, match="nowhere"):
        ss.enrich(spark.read.parquet(files), tmp_path / "nowhere", on="product_id")


def test_a_master_rebuilt_with_other_columns_is_told(spark, folder, files, tmp_path):
    path = folder / "changing"
    ss.build_master(products(), path, key="product_id")

    def rebuilt(df):
        out = ss.enrich(df, path, on="product_id", memory="4MB")
        ss.build_master(products().drop_columns(["units"]), path, key="product_id")
        return out

    with pytest.raises(Exception, match="rebuilt with other columns"):
        streamed(spark, files, rebuilt, tmp_path)


def test_a_master_rebuilt_with_other_columns_since_the_checkpoint(spark, tmp_path):
    path, stream = tmp_path / "master", tmp_path / "stream"
    ss.build_master(products(), path, key="product_id")
    stream.mkdir()

    def run(number):
        pq.write_table(sales(100), stream / f"{number}.parquet")
        wish = {"select": ["surrogate"], "memory": "4MB", "check": False}
        make = lambda df: ss.enrich(df, path, on="product_id", **wish)  # noqa: E731
        streamed(spark, str(stream), make, tmp_path)

    run(0)
    run(1)
    ss.build_master(products().drop_columns(["units"]), path, key="product_id")
    run(2)  # a column that is not taken does not matter
    texts = products()["surrogate"].cast(pa.string())
    ss.build_master(products().set_column(1, "surrogate", texts), path, key="product_id")
    with pytest.raises(Exception, match="since the query's checkpoint was begun"):
        run(3)


def test_a_batch_stays_with_the_snapshot_that_it_was_planned_on(spark, folder, files):
    path = folder / "renewed"
    old = ss.build_master(products(), path, key="product_id")
    wish = {"on": "product_id", "how": "semi", "memory": "4MB"}
    out = ss.enrich(spark.read.parquet(files), path, **wish)
    before = out.count()
    ss.build_master(products(keys=10), path, key="product_id")
    assert out.count() == before
    assert ss.enrich(spark.read.parquet(files), path, **wish).count() < before
    chosen = ss.open_master(path, snapshot=old.snapshot)
    assert ss.enrich(spark.read.parquet(files), chosen, **wish).count() == before


# -- what the first page says ---------------------------------------------------------------------


def test_the_twelve_lines_of_the_readme(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for Spark, whose folder was fixed at its start, paths are whole
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    lines = readme.split("```python\n")[1].split("```")[0]
    for name in ("sales", "checkpoint", "warehouse"):
        lines = lines.replace(f'"{name}"', f'"{tmp_path / name}"')
    exec(lines, {})  # noqa: S102
    rows = {tuple(row) for row in spark.read.parquet(str(tmp_path / "warehouse")).collect()}
    assert rows == {(1, 2, 902, 1.25), (2, 7, None, None)}
