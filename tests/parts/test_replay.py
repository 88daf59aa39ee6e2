"""A quarantine brought back: each row reaches the sink once, whenever it is cut off."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.classic.dataframe import DataFrame
from test_split import (
    VENDORS,
    CrashError,
    assert_exact,
    crash,
    crashing,
    folder,
    pipeline,
    put_master,
    run,
    run_with_crashes,
    table,
    wanted,
)
from typer.testing import CliRunner

import semistream as ss
from semistream.cli.commands import app
from semistream.missing import QUARANTINED
from semistream.pipeline import read_pipeline
from semistream.pipeline.file.ends import ParquetSink
from semistream.pipeline.io import sinks
from semistream.pipeline.run import replay as replaying
from semistream.pipeline.run.query import enrich_all
from semistream.pipeline.run.replay import ReplayError, ReplayResult, replay

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]
__all__ = ["crashing", "folder"]

LATE = {"key": [k for k in range(100) if k % 10], "vendor": [k % 7 for k in range(100) if k % 10]}
LATER = {"key": list(range(100)), "vendor": [k % 7 for k in range(100)]}
ALL = {"vendor": [*VENDORS["vendor"], 5, 6], "city": [*VENDORS["city"], "F", "G"]}


def test_a_replay_that_was_cut_off_is_finished_and_none_is_written_twice(
    spark, folder, monkeypatch
):
    path = pipeline(folder)
    run(path, spark)
    before = len(table(folder / "out.quarantine", "sale"))
    put_master(folder, "products", LATE, "key")
    told = read_pipeline(path)
    for whose, step in ((replaying, "write_batch"), (replaying._Replay, "_take_out")):
        with monkeypatch.context() as patched:
            patched.setattr(whose, step, crash)
            with pytest.raises(CrashError):
                replay(told, spark, where="_enrichment = 'products'")
    assert_refused(path, spark, "checkpoint: apart\n", "of another pipeline or checkpoint: query")
    assert_refused(path, spark, ("place", "town"), r"columns \['place'\] that the pipeline no lon")
    put_master(folder, "products", LATER, "key")  # what was found before holds all the same
    put_master(folder, "vendors", ALL, "vendor")
    done = replay(told, spark, where="_reason = 'absent'", limit=100)
    assert done.finished > 100
    assert (done.tried, done.matched, done.written, done.left) == (100, 100, 100, {})
    done = replay(told, spark)
    assert done.left == {"null key": len(wanted(folder, "1", "key IS NULL"))}
    assert_exact(folder)
    rows = DeltaTable(folder / "out.quarantine").to_pyarrow_table()
    assert rows["_attempts"].to_pylist() == [2] * len(rows)
    assert len(rows) < before
    assert replay(told, spark, where="_reason = 'absent'") == ReplayResult()
    path.write_text(path.read_text() + "checkpoint: apart\n")
    assert replay(read_pipeline(path), spark) == ReplayResult(others=len(rows))


def assert_refused(path, spark, change, message):
    text = path.read_text()
    path.write_text(text + change if isinstance(change, str) else text.replace(*change))
    with pytest.raises(ReplayError, match=message):
        replay(read_pipeline(path), spark)
    path.write_text(text)


@pytest.fixture
def quarantine(folder):
    """Make one as another checkpoint would have left it; no stream runs."""
    rows = pa.table({"sale": range(60), "key": range(60)})
    now = datetime.now(UTC)
    told = ("absent", "products", now, "before", 0, 0)
    for name, value in zip(QUARANTINED, told, strict=False):
        rows = rows.append_column(name, pa.array([value] * 60))
    rows = rows.append_column("_row", pa.array([str(row) for row in range(60)]))
    write_deltalake(folder / "out.quarantine", rows)
    put_master(folder, "products", LATER, "key")
    put_master(folder, "vendors", ALL, "vendor")
    return read_pipeline(pipeline(folder))


@pytest.mark.long
def test_of_two_replays_at_once_one_fails_and_each_row_is_written_once(
    spark, folder, quarantine, monkeypatch
):
    """The other begins behind this one's look at what is held, and is cut off."""
    hold = replaying._Replay._answer

    def meanwhile(*arguments):
        monkeypatch.setattr(replaying._Replay, "_answer", hold)
        with monkeypatch.context() as patched:
            patched.setattr(replaying, "write_batch", crash)
            with pytest.raises(CrashError):
                replay(quarantine, spark, any_query=True, limit=10)
        hold(*arguments)

    monkeypatch.setattr(replaying._Replay, "_answer", meanwhile)
    with pytest.raises(ReplayError, match="is at work; nothing is lost: wait until it has ended"):
        replay(quarantine, spark, any_query=True)
    done = replay(quarantine, spark, any_query=True)
    assert (done.finished, done.tried, done.written) == (10, 50, 50)
    assert table(folder / "out", "sale") == sorted(((sale,) for sale in range(60)), key=repr)
    assert table(folder / "out.quarantine", "sale") == []


def test_a_row_is_found_or_missing_though_a_join_computed_again_says_otherwise(
    spark, folder, quarantine, monkeypatch
):
    """Each look at this join has other answers, as a live master's may be."""

    def restless(rows, told):
        joined, name = enrich_all(rows, told), "__semistream_status_0"
        answer = F.expr("if(uuid() < '8', 'matched', 'absent')")
        return joined.withColumn(name, answer).withMetadata(name, joined.schema[name].metadata)

    monkeypatch.setattr(replaying, "enrich_all", restless)
    monkeypatch.setattr(DataFrame, "persist", lambda frame: frame)  # as if executors were lost
    beside, views = folder / "out.quarantine.replay.found", spark.catalog.listTables()
    for other, age in (("at work", 0), ("killed", 8 * 86_400)):
        (beside / other).mkdir(parents=True)
        os.utime(beside / other, (time.time() - age,) * 2)
    done = replay(quarantine, spark, any_query=True)
    assert done.tried == 60 == done.matched + done.left["absent"]
    assert len(table(folder / "out", "sale")) == done.matched
    assert len(table(folder / "out.quarantine", "sale")) == done.left["absent"]
    assert [path.name for path in beside.iterdir()] == ["at work"]
    assert spark.catalog.listTables() == views


def test_a_batch_that_two_write_at_once_is_in_parquet_once(spark, tmp_path):
    sink = ParquetSink(path=f"{tmp_path}/out", partition_by=("third",))
    rows = spark.range(90).selectExpr("id", "id % 3 AS third")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: sinks.write_batch(sink, rows, "query", 7), range(4)))
    sinks.write_batch(sink, rows, "query", 8)
    got = spark.read.parquet(sink.path)
    assert sorted(row.id for row in got.collect()) == sorted([*range(90)] * 2)
    assert len(list((tmp_path / "out").glob(f"{sinks.BATCH_FOLDER}=*"))) == 2
    assert list((tmp_path / "out" / ".semistream").iterdir()) == []


def test_the_command_says_what_became_of_rows_and_parquet_has_a_folder_a_batch(
    spark, folder, crashing
):
    path = pipeline(folder, sink="{kind: parquet, path: out}", second="drop")
    assert replay(read_pipeline(path), spark) == ReplayResult()
    run_with_crashes(path, spark, crashing)
    folders = [each.name for each in (folder / "out").glob(f"{sinks.BATCH_FOLDER}=*")]
    assert sorted(name.rpartition("-")[2] for name in folders) == ["0", "1"]
    put_master(folder, "products", LATER, "key")
    done = CliRunner().invoke(app, ["replay", str(path), "--json", "--where", "_batch = 0"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["quarantine"], told["left"]) == (f"{folder}/out.quarantine", {"null key": 118})
    assert told["matched"] + told["dropped"] == told["tried"] - 118 > 0
    assert told["dropped"] > 0
    done = CliRunner().invoke(app, ["replay", str(path)])
    assert done.exit_code == 0, done.output
    assert "236 stay (236 null key)" in done.stdout, done.stdout
    got = spark.read.parquet(f"{folder}/out").select("sale", "key", "place").collect()
    good = wanted(folder, "sale, key, city", "reason IS NULL")
    assert sorted(map(tuple, got), key=repr) == good
    wrong = CliRunner().invoke(app, ["replay", str(path), "--where", "reason ="])
    assert wrong.exit_code == 1
    assert "--where 'reason =' is not understood" in wrong.stderr


def test_rows_that_come_back_get_surrogates_too(spark, folder):
    vendors = pa.table({"vendor": [0, 1], "sk": [10, 20]})
    ss.build_master(vendors, folder / "vendors", key="vendor")
    write_deltalake(folder / "dimension", vendors)
    path = pipeline(folder, second="null, surrogate: sk, dimension: dimension")
    path.write_text(path.read_text().replace("rename: {city: place}", "rename: {sk: place}"))
    for file in (folder / "sales").glob("1.*"):
        file.unlink()
    run(path, spark)
    put_master(folder, "products", LATER, "key")
    assert replay(read_pipeline(path), spark).left == {"null key": 118}
    members = dict(table(folder / "dimension", "vendor", "sk"))
    assert sorted(members.values()) == [10, 20, 21, 22, 23, 24, 25]
    expected = wanted(folder, "sale, vendor", "key IS NOT NULL")
    assert table(folder / "out", "sale", "place") == sorted(
        ((sale, members[vendor]) for sale, vendor in expected), key=repr
    )
