"""What writers leave in files: old timestamps, files that do not count, halves, nulls."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from test_lake import products
from typer.testing import CliRunner

import semistream as ss
from semistream.cli.commands import app
from semistream.errors import MasterError, OptionError
from support.masters import PAGE, rows_of, same_as_built

if TYPE_CHECKING:
    from pathlib import Path

# Timestamps of 96 bits

MOMENT = pa.timestamp("us", "UTC")
MOMENTS = [
    datetime(9999, 12, 31, tzinfo=UTC),  # until further notice
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 5, 4, 12, 30, 1, 250, tzinfo=UTC),
    None,
]
DIMENSION = pa.schema([("id", pa.int64()), ("until", MOMENT)])


def dimension(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 4), "until": MOMENTS}, schema=DIMENSION)


def write_int96(table: pa.Table, path: Path) -> None:
    """Write as Spark, Hive and Impala do."""
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    leaves = pq.read_metadata(path).schema
    assert "INT96" in {leaves.column(i).physical_type for i in range(len(leaves))}


def test_a_folder_whose_timestamps_have_96_bits(tmp_path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_int96(dimension(0), folder / "a.parquet")
    master = ss.build_master(folder, tmp_path / "m", key="id", page_bytes=PAGE)
    assert master.schema == DIMENSION
    same_as_built(master, dimension(0), tmp_path / "built")
    write_int96(dimension(4), folder / "b.parquet")
    pq.write_table(dimension(8), folder / "c.parquet")  # as newer writers do
    synced = ss.sync_master(tmp_path / "m")
    assert synced.how == "files"
    wanted = pa.concat_tables([dimension(0), dimension(4), dimension(8)])
    same_as_built(synced.master, wanted, tmp_path / "built again")


def test_timestamps_of_96_bits_as_keys_and_in_nested_columns(tmp_path) -> None:
    moments = MOMENTS[:3]
    structs = pa.array([{"n": 1, "at": moment} for moment in moments])
    columns = {
        "at": pa.array(moments, MOMENT),
        "list": pa.array([[moment, None] for moment in moments], pa.list_(MOMENT)),
        "struct": structs.cast(pa.struct([("n", pa.int64()), ("at", MOMENT)])),
        "map": pa.array([[("k", moment)] for moment in moments], pa.map_(pa.string(), MOMENT)),
    }
    write_int96(pa.table(columns), tmp_path / "a.parquet")
    master = ss.build_master(tmp_path / "a.parquet", tmp_path / "m", key="at")
    stream = pa.record_batch({"at": columns["at"]})
    with ss.Join(master, stream.schema, on="at", memory="1MB") as join:
        found = pa.Table.from_batches([*join.offer(stream), *join.drain()])
    assert sorted(found.to_pylist(), key=str) == sorted(pa.table(columns).to_pylist(), key=str)


def test_a_time_without_zone_stays_one(tmp_path) -> None:
    local = pa.array([None], pa.timestamp("us"))
    pq.write_table(pa.table({"id": [1], "local": local}), tmp_path / "a.parquet")
    master = ss.build_master(tmp_path / "a.parquet", tmp_path / "m", key="id")
    assert master.schema.field("local").type == local.type


def commit(table: Path, version: int, *actions: dict) -> None:
    log = table / "_delta_log" / f"{version:020}.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("\n".join(map(json.dumps, actions)))


def added(file: Path) -> dict:
    facts = {"partitionValues": {}, "modificationTime": 0, "dataChange": True}
    return {"add": {"path": file.name, "size": file.stat().st_size, **facts}}


def test_a_delta_table_whose_timestamps_have_96_bits(tmp_path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    write_int96(dimension(0), table / "a.parquet")
    fields = [Field("id", PrimitiveType("long")), Field("until", PrimitiveType("timestamp"))]
    about = {"id": "d", "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    about |= {"schemaString": Schema(fields).to_json(), "configuration": {}, "createdTime": 0}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    commit(table, 0, {"protocol": protocol}, {"metaData": about}, added(table / "a.parquet"))
    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes=PAGE)
    same_as_built(master, dimension(0), tmp_path / "built")
    write_int96(dimension(4), table / "b.parquet")
    commit(table, 1, added(table / "b.parquet"))
    synced = ss.sync_master(tmp_path / "m")
    assert (synced.how, synced.version) == ("files", 1)
    wanted = pa.concat_tables([dimension(0), dimension(4)])
    same_as_built(synced.master, wanted, tmp_path / "built again")


# Files that do not count, or not yet


def test_a_folder_with_the_log_of_a_stream_is_refused(tmp_path) -> None:
    folder = tmp_path / "files"
    (folder / "_spark_metadata").mkdir(parents=True)
    for name in ("part-0.parquet", "part-0-again.parquet"):  # of a task that died, and its twin
        pq.write_table(products(range(10)), folder / name)
    with pytest.raises(OptionError, match=r"files'.*_spark_metadata.*spark\.read\.parquet") as told:
        ss.build_master(folder, tmp_path / "m", key="id")
    assert "Delta" in str(told.value)
    assert not (tmp_path / "m").exists()
    one = ss.build_master(folder / "part-0.parquet", tmp_path / "m", key="id")
    assert rows_of(one) == rows_of(ss.build_master(products(range(10)), tmp_path / "b", key="id"))


def half_written(table: pa.Table, path: Path) -> bytes:
    """Write the first half of a file; give the whole."""
    pq.write_table(table, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def test_a_file_that_is_half_written_is_said_and_read_when_it_is_whole(tmp_path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(products(range(10)), folder / "a.parquet")
    ss.build_master(folder, tmp_path / "m", key="id")
    whole = half_written(products(range(10, 14)), folder / "b.parquet")
    with pytest.raises(MasterError, match=r"files' cannot be read .*the master is as it was\. Try"):
        ss.sync_master(tmp_path / "m")
    assert ss.open_master(tmp_path / "m").rows == 10
    (folder / "b.parquet").write_bytes(whole)
    synced = ss.sync_master(tmp_path / "m")
    assert synced.how == "files"
    same_as_built(synced.master, products(range(14)), tmp_path / "built")


def test_who_watches_goes_on_after_a_file_that_was_half_written(tmp_path, monkeypatch) -> None:
    folder, master = tmp_path / "files", tmp_path / "m"
    folder.mkdir()
    pq.write_table(products(range(10)), folder / "a.parquet")
    ss.build_master(folder, master, key="id")
    wholes: list[bytes] = []

    def wait(_: float) -> None:
        if not wholes:
            wholes.append(half_written(products(range(10, 14)), folder / "b.parquet"))
        elif len(wholes) == 1:
            wholes.append(wholes[0])
            (folder / "b.parquet").write_bytes(wholes[0])
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("semistream.cli.master.sleep", wait)
    watched = CliRunner().invoke(app, ["master", "sync", str(master), "--watch", "1s", "--json"])
    assert watched.exit_code == 0, watched.output
    assert [json.loads(line)["rows"] for line in watched.stdout.splitlines()] == [10, 14]
    assert "cannot be read" in watched.stderr


# Nulls


def test_a_column_that_may_be_null_now_is_followed(tmp_path) -> None:
    uri = str(tmp_path / "table")
    strict = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    write_deltalake(uri, pa.table({"id": range(400), "name": ["a"] * 400}, schema=strict))
    master = ss.build_master(uri, tmp_path / "m", key="id", page_bytes=PAGE)
    assert not master.schema.field("name").nullable
    loose = pa.schema([("id", pa.int64()), ("name", pa.string())])
    new = pa.table({"id": range(401), "name": ["a"] * 400 + [None]}, schema=loose)
    write_deltalake(uri, new, mode="overwrite", schema_mode="overwrite")
    synced = ss.sync_master(tmp_path / "m")
    assert synced.master.schema == loose
    assert (synced.upserted, synced.deleted) == (1, 0)
    same_as_built(synced.master, DeltaTable(uri).to_pyarrow_table(), tmp_path / "built")
    stream = pa.record_batch({"id": [400, 3]})
    with ss.Join(synced.master, stream.schema, on="id", memory="1MB") as join:
        found = pa.Table.from_batches([*join.offer(stream), *join.drain()])
    assert sorted(found.to_pylist(), key=str) == [
        {"id": 3, "name": "a"},
        {"id": 400, "name": None},
    ]


def test_nullability_alone_is_taken_over_without_new_pages(tmp_path) -> None:
    uri = str(tmp_path / "table")
    strict = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    rows = {"id": range(40), "name": ["a"] * 40}
    write_deltalake(uri, pa.table(rows, schema=strict))
    before = ss.build_master(uri, tmp_path / "m", key="id")
    loose = pa.schema([("id", pa.int64()), ("name", pa.string())])
    write_deltalake(uri, pa.table(rows, schema=loose), mode="overwrite", schema_mode="overwrite")
    synced = ss.sync_master(tmp_path / "m")
    assert (synced.version, synced.values) == (1, 0)
    assert synced.master.schema == loose
    assert synced.master.manifest.files == before.manifest.files
