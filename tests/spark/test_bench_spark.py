"""A tiny version of the benchmark on Spark: what it measures is right, whatever the figures are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.harness.command import Job
from benchmarks.harness.record import read_record, write_record
from benchmarks.harness.table import markdown
from benchmarks.spark.data import Products, Sales
from benchmarks.spark.tasks import SPARK, SparkGrid, measure_parts
from semistream import open_master
from support.cli import sheets

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 20_000
TINY = replace(
    SparkGrid(rows=(ROWS,), batch_rows=(800,), exponents=(1.0,), workers=(2,)),
    reads=("direct",),
    partitions=2,
    single_rounds=1,
    single_batches=3,
    routed_batches=3,
    warm_batches=2,
    later_batches=1,
    share=0.8,
    pause=0.0,
)


class Here:
    """Calls functions in this process, where the tests' session is."""

    def call(self, where, function, *args):  # noqa: ARG002
        return function(*args)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


def test_both_masters_have_the_same_rows(folder):
    products = Products(1_000, folder)
    plain = products.batches().read_all()
    assert 110 < plain.nbytes / len(plain) < 126
    assert open_master(products.master()).schema.names == plain.column_names
    assert len(list(products.parquet().glob("*.parquet"))) == 1
    assert products.parquet() == products.parquet()


def test_a_stream_is_cut_into_files(folder):
    sales = Sales(1_000, 1.0, 100, 3, files=2)
    batches = sales.prepare(folder)
    later = replace(batches, count=1, start=1).paths
    assert [file.name for file in later] == ["00002.parquet", "00003.parquet"]
    assert later[0].stat().st_mtime < later[1].stat().st_mtime
    assert len(batches.paths) == 6


@pytest.mark.long
def test_a_whole_record(spark, folder):
    said = []
    job = Job(TINY, folder, SPARK.begin(TINY), said.append)
    assert len(list(measure_parts(job, Here()))) == TINY.steps
    write_record(job.record, folder / "spark.json")
    record = read_record(folder / "spark.json")
    assert {len(took) for took in record["single"]["milliseconds"]["enrich"]} == {3}
    for entry in record["routing"]:
        (tasks,) = entry["batches"]  # the first two are not counted
        assert len(tasks) == 2
        assert sum(rows for _, rows in tasks) == 800
    warmth = record["warmth"]
    assert len(warmth["one_join"]) == len(warmth["crews"][0]["hit_rates"]) == 4
    assert all(0 <= rate <= 1 for rate in warmth["crews"][0]["hit_rates"])
    assert 0 < warmth["crews"][0]["held"] <= warmth["memory"]
    shown = markdown(sheets(record))
    assert shown.count("**") == 2 * 3
    assert not record["failed"]
    assert said[-1] == "warmth: 2 workers, one of them killed"
