"""A golden net: what every algorithm and every path does on one small seeded trace.

Counters and rows are pinned in `golden.json`, so that a change of structure that changes a decision
is seen at once. Where a change is meant, write the file anew and explain the difference::

    SEMISTREAM_GOLDEN=write pytest tests/golden
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.workloads import Stream, Zipf, master_table
from support.variants import VARIANTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent / "golden.json"
WRITE = os.environ.get("SEMISTREAM_GOLDEN") == "write"
KEYS, ROWS, BATCH = 10_000, 40_000, 4_000
ABSENT = 20  # one key in so many is not in the master
SMALL, LARGE = "256KB", "16MB"  # a fifth of the pages, and all of them
PATHS = {
    "mapped": {"memory": SMALL},
    "direct": {"memory": SMALL, "read": "direct"},
    "resident": {"memory": LARGE},
}
COLUMNS = ["surrogate", "price", "vendor"]
COUNTERS = ("rows_in", "rows_out", "filtered", "cache_hits", "looked_up", "pinned_hits", "absent")
WORK = ("iterations", "reads", "pages_read", "evicted")


def products() -> pa.Table:
    table = master_table(KEYS, row_bytes=120).read_all()
    return table.filter(pa.array(np.asarray(table["key"]) % ABSENT != 0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "master"
    ss.build_master(products(), path, key="key", page_bytes="8KB")
    return path


def trace():
    return Stream(Zipf(KEYS, 1.0), seed=7).batches(ROWS, batch_rows=BATCH)


def digest(table: pa.Table) -> int:
    """Return a number that depends on every row, and not on their order."""
    total = 0
    for name in table.column_names:
        if pa.types.is_integer(table.schema.field(name).type):
            values = table[name].to_numpy().astype(np.float64)
            sales = table["sale"].to_numpy().astype(np.float64)
            product = np.nan_to_num(values, nan=-1.0) % 1009 * (sales % 997 + 1)
            total += int(product.sum())
    return total


def check(name: str, found: dict[str, int]) -> None:
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if WRITE:
        golden[name] = found
        GOLDEN.write_text(json.dumps(dict(sorted(golden.items())), indent=1) + "\n")
    assert found == golden[name]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_algorithm_does_what_it_did(folder, variant, path):
    (algorithm, options), how = VARIANTS[variant], dict(PATHS[path])
    master = ss.open_master(folder, read=how.pop("read", None))
    schema = Stream(Zipf(KEYS)).schema
    with ss.Join(
        master, schema, on="key", how="left", algorithm=algorithm, filter=False, **how, **options
    ) as join:
        out = [rows for batch in trace() for rows in join.offer(batch)]
        out += list(join.drain())
        metrics = join.metrics.as_dict()
    found = {counter: metrics[counter] for counter in COUNTERS + WORK}
    check(f"{variant}, {path}", found | {"rows": digest(pa.Table.from_batches(out))})


@pytest.mark.parts
@pytest.mark.xdist_group("databases")
def test_key_lists_of_a_database_do_what_they_did(postgresql):
    postgresql.load("golden", products().select(["key", *COLUMNS]), key="key")
    master = ss.open_master(postgresql.url(), table="golden", key="key")
    with ss.Join(master, Stream(Zipf(KEYS)).schema, on="key", how="left", memory=SMALL) as join:
        out = [rows for batch in trace() for rows in join.offer(batch)]
        out += list(join.drain())
        metrics = join.metrics.as_dict()
    found = {counter: metrics[counter] for counter in (*COUNTERS, "queries", "fetched", "evicted")}
    check("postgresql", found | {"rows": digest(pa.Table.from_batches(out))})


@pytest.mark.parametrize("transfer", ["none", "keys", "rows"])
@pytest.mark.xdist_group("spark")
def test_a_way_through_spark_does_what_it_did(spark: SparkSession, folder, transfer):
    stream = spark.createDataFrame(pa.Table.from_batches(trace()))
    how = {"on": "key", "how": "left", "memory": "16MB", "select": COLUMNS}
    table = ss.enrich(stream, folder, transfer=transfer, **how).toArrow()
    nulls = table[table.column_names[-1]].null_count
    check(f"spark, {transfer}", {"rows_out": len(table), "absent": nulls, "rows": digest(table)})
