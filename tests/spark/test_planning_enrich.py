"""What a plan says of `enrich` is what `enrich` does."""

from __future__ import annotations

import re

import pytest

import semistream as ss
from semistream.errors import BudgetError
from semistream.planning import curve
from semistream.planning.machine import Machine
from semistream.workloads import Stream, Zipf, master_table

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_the_least_memory_is_what_enrich_accepts(spark, tmp_path, monkeypatch, read):
    monkeypatch.setattr(curve, "_POINTS", 2)
    ss.build_master(master_table(20_000), tmp_path / "m", key="key", page_bytes="16KB")
    stream = Stream(Zipf(20_000)).schema
    rows = spark.createDataFrame([(1, 2, 3)], "key long, sale long, quantity int")
    planning = ss.plan(
        tmp_path / "m", machine=Machine(), read=read, tasks=4, stream_schema=stream,
        host_memory="1GB",
    )  # fmt: skip
    options = {"on": "key", "read": read, "tasks": 4, "check": False}
    for point in planning.enrich.points:
        ss.enrich(rows, tmp_path / "m", memory=point.memory, **options)
    with pytest.raises(BudgetError, match="the least that works") as refused:
        ss.enrich(rows, tmp_path / "m", memory=planning.enrich.least - 2048, **options)
    assert refused.value.least <= planning.enrich.least < refused.value.least + 1024


def test_the_way_is_the_one_that_enrich_chooses(spark, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(curve, "_POINTS", 2)
    ss.build_master(master_table(5_000), tmp_path / "m", key="key", page_bytes="16KB")
    rows = spark.createDataFrame([(1, 2, 3)], "key long, sale long, quantity int")
    for select, read, way in (
        (["price"], "mapped", "none"),
        (None, "mapped", "keys"),
        (None, "direct", "rows"),
    ):
        planning = ss.plan(
            tmp_path / "m", machine=Machine(), memory="4MB", read=read, select=select, tasks=2,
            host_memory="1GB",
        )  # fmt: skip
        words = {"none": "Spark's JVM", "keys": "keys pass", "rows": "rows pass"}
        assert planning.enrich.chosen.way.startswith(words[way])
        with caplog.at_level("INFO", "semistream.spark.enrich.enrichment"):
            ss.enrich(
                rows, tmp_path / "m", on="key", memory="4MB", read=read, select=select, check=False
            )
        (chosen,) = re.findall(r"transfer=(\w+)", caplog.messages[-1])
        assert chosen == way
