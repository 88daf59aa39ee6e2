"""Flink's lookup join, which the benchmark on databases sets beside ours: does it join rightly?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import semistream as ss
from benchmarks.spark.data import KEY, Products, Sales
from benchmarks.spark.database import store_of
from benchmarks.spark.flink import (
    Flink,
    FlinkError,
    FlinkSetting,
    insert,
    join_by_flink,
    prepare,
    tables,
    time_flink,
)
from benchmarks.spark.peers.lookup import budget_for
from benchmarks.spark.systems import Setting
from semistream.errors import OptionError
from semistream.hotset import HostShare

if TYPE_CHECKING:
    from support.servers.databases import PostgreSQL

KEPT = Path(__file__).parents[2] / ".bench" / "flink"  # 900 MB, installed once
ROWS = 20_000
NOWHERE = "postgresql://me:it%27s@127.0.0.1:1/shop"


def setting(url: str) -> FlinkSetting:
    schema = Products(0, Path()).batches().schema
    columns = pa.schema([field for field in schema if field.name != KEY])
    return FlinkSetting(store_of(url, "flink_products"), columns, cached=ROWS // 20)


def sales(folder: Path, batches: int) -> list[Path]:
    stream = Sales(ROWS, 1.0, batch_rows=4000, batches=batches, absent=0.1)
    return stream.prepare(folder).paths


@pytest.fixture(scope="module")
def flink() -> Flink:
    found = prepare(KEPT, print)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def at(postgresql: PostgreSQL) -> FlinkSetting:
    at = setting(postgresql.url())
    at.store.load(Products(ROWS, Path()))
    return at


def test_the_budget_for_as_many_rows_holds_them(
    postgresql: PostgreSQL, at: FlinkSetting, tmp_path: Path
) -> None:
    beside = Setting(Products(ROWS, tmp_path), "left", 1 << 20, url=postgresql.url())
    beside.store.load(beside.products)
    budget, shared = budget_for(4 * at.cached, beside), HostShare(tmp_path / "host", tasks=2)
    master = ss.open_master(postgresql.url(), table=beside.store.table, key=KEY)
    keys = pa.record_batch({KEY: pa.array(range(0, 2 * 4 * at.cached, 2), pa.int64())})
    with ss.Join(master, keys.schema, on=KEY, memory=budget * 3 // 4, shared=shared) as join:
        for _ in range(32):  # an eighth of the room is filled at a time
            before = join.metrics.fetched
            list(join.offer(keys))
            list(join.drain())
    assert join.metrics.fetched - before <= keys.num_rows // 20


def expected(files: list[Path], how: str) -> list[tuple[object, ...]]:
    products = Products(ROWS, Path()).batches().read_all()
    with duckdb.connect() as db:
        db.register("products", products)
        names = ", ".join(f"p.{name}" for name in products.column_names if name != KEY)
        stream = f"read_parquet({[str(file) for file in files]})"
        query = f"SELECT s.*, {names} FROM {stream} s {how} JOIN products p USING ({KEY})"  # noqa: S608
        return db.execute(f"{query} ORDER BY sale").fetchall()


def written(folder: Path) -> list[tuple[object, ...]]:
    with duckdb.connect() as db:
        query = f"SELECT * FROM read_parquet('{folder}/*') ORDER BY sale"  # noqa: S608
        return db.execute(query).fetchall()


def test_the_password_is_quoted_and_the_cache_is_partial(tmp_path: Path) -> None:
    _, products, joined = tables(setting(NOWHERE), tmp_path, None)
    assert "'password' = 'it''s'" in products
    assert "'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '1000'" in products
    assert joined.endswith("WITH ('connector' = 'blackhole')")


def test_the_join_is_as_of_processing_time() -> None:
    how = replace(setting(NOWHERE), how="inner")
    assert "INNER JOIN products FOR SYSTEM_TIME AS OF s.proc_time AS p" in insert(how)


def test_a_stream_that_only_warms_is_refused(tmp_path: Path) -> None:
    nothing = Flink(tmp_path, (), tmp_path)
    with pytest.raises(OptionError, match="no rows are left to count: 4,000"):
        time_flink(nothing, setting(NOWHERE), sales(tmp_path, 2), warm=4000)


@pytest.mark.parts
@pytest.mark.long
@pytest.mark.parametrize("how", ["left", "inner"])
def test_flink_gives_the_rows_of_the_join(
    flink: Flink, at: FlinkSetting, tmp_path: Path, how: str
) -> None:
    files = sales(tmp_path, 2)
    at = replace(at, how=how)
    rows = written(join_by_flink(flink, at, files, tmp_path / "joined"))
    assert rows == expected(files, how)
    assert (len(rows) == 8000) == (how == "left")


@pytest.mark.parts
@pytest.mark.long
def test_rows_after_the_warm_up_are_counted(flink: Flink, at: FlinkSetting, tmp_path: Path) -> None:
    files = sales(tmp_path, 100)
    run = time_flink(flink, at, files, warm=100_000)
    assert 0 < run.rows <= 400_000 - 100_000
    assert run.samples[0] == (0, 0)
    assert run.samples[-1] == (run.seconds, run.rows)
    assert run.cached == at.cached
    assert 0.3 < run.hits < 0.9
    assert run.peak > 100_000_000


@pytest.mark.parts
@pytest.mark.long
def test_a_job_that_fails_says_why(flink: Flink, tmp_path: Path) -> None:
    with pytest.raises(FlinkError, match=r"failed: .*[Cc]onnect"):
        time_flink(flink, setting(NOWHERE), sales(tmp_path, 4), warm=1000)
