"""A quarantine brought back: each row reaches the sink once, whenever it is cut off."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

import semistream as ss
from semistream.commands import app
from semistream.pipeline import read_pipeline
from semistream.spark import batches
from semistream.spark import replay as replaying
from semistream.spark.replay import Replayed, replay
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

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("spark")]
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
    assert replay(told, spark, where="_reason = 'absent'") == Replayed()


def test_the_command_says_what_became_of_rows_and_parquet_has_a_folder_a_batch(
    spark, folder, crashing
):
    path = pipeline(folder, sink="{kind: parquet, path: out}", second="drop")
    assert replay(read_pipeline(path), spark) == Replayed()
    run_with_crashes(path, spark, crashing)
    folders = [each.name for each in (folder / "out").glob(f"{batches.BATCH_FOLDER}=*")]
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
