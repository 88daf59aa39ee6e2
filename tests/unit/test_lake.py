"""Delta, Iceberg and Parquet folders as masters: built at a version, synced to the next."""

from __future__ import annotations

import resource
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config

import semistream as ss
from semistream.errors import MasterError, OptionError, SchemaError
from semistream.master.lake.iceberg import Iceberg
from semistream.master.lake.parquet import ParquetFiles
from semistream.master.place import without_secrets
from support.masters import PAGE, same_as_built

if TYPE_CHECKING:
    from pathlib import Path

PRODUCTS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("made", pa.timestamp("us", "UTC")),
    ]
)
FEED = {"delta.enableChangeDataFeed": "true"}


def products(ids, version: int = 0) -> pa.Table:
    ids = list(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [None if i % 7 == 0 else f"product {i}, v{version}" for i in ids],
            "price": [i / 4 for i in ids],
            "tags": [[f"t{i % 3}"] * (i % 4) for i in ids],
            "made": ids,
        },
        schema=PRODUCTS,
    )


def duplicated(ids, version: int = 0) -> pa.Table:
    """Give every key three rows."""
    ids = [i // 3 for i in ids]
    return products(ids, version).append_column("n", pa.array(range(len(ids)), pa.int64()))


# Delta


def delta(path: Path, table: pa.Table, feed: bool, **options) -> str:
    write_deltalake(path, table, configuration=FEED if feed else None, **options)
    return str(path)


def delta_steps(uri: str, make):
    """Change a table in all ways that writers have; say what each was."""
    yield "append", write_deltalake(uri, make(range(400, 450), 1), mode="append")
    DeltaTable(uri).update(predicate="id >= 20 AND id < 30", updates={"name": "'new'"})
    yield "update", None
    DeltaTable(uri).delete("id % 50 = 3")
    yield "delete", None
    source = make(range(90, 480, 10), 2)
    merge = DeltaTable(uri).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
    if make is products:
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        yield "merge", None
    write_deltalake(uri, make(range(500, 510), 3), mode="append")
    yield "append", None
    DeltaTable(uri).optimize.compact()
    yield "compact", None
    write_deltalake(uri, make(range(100, 130), 3), mode="append")
    DeltaTable(uri).delete("id = 101")
    yield "two at once", None
    DeltaTable(uri).restore(1)
    yield "restore", None
    yield "overwrite", write_deltalake(uri, make(range(50, 300), 4), mode="overwrite")


@pytest.mark.parametrize("make", [products, duplicated])
@pytest.mark.parametrize("feed", [True, False], ids=["feed", "files"])
def test_delta_follows_every_kind_of_change(tmp_path, feed, make) -> None:
    uri = delta(tmp_path / "table", make(range(400)), feed)
    path = tmp_path / "master"
    ss.build_master(uri, path, key="id", page_bytes=PAGE)
    for step, (what, _) in enumerate(delta_steps(uri, make)):
        synced = ss.sync_master(path)
        now = DeltaTable(uri)
        assert synced.version == now.version(), what
        assert synced.how == ("change data feed" if feed else "files"), what
        assert bool(synced.values) == (what != "compact"), what
        same_as_built(synced.master, now.to_pyarrow_table(), tmp_path / f"built {step}")


def test_delta_is_built_at_a_version_and_comes_to_one(tmp_path) -> None:
    uri = delta(tmp_path / "table", products(range(10)), feed=True)
    for version in range(1, 4):
        write_deltalake(uri, products([100 + version], version), mode="append")
    master = ss.build_master(uri, tmp_path / "m", key="id", version=1, columns=["name", "id"])
    assert master.rows == 11
    assert master.schema.names == ["name", "id"]
    source = dict(master.manifest.source)
    assert source.pop("table")
    assert source == {"kind": "delta", "uri": uri, "version": 1, "mapped": False}
    synced = ss.sync_master(tmp_path / "m", version=2)
    assert (synced.version, synced.upserted, synced.master.rows) == (2, 1, 12)
    assert synced.master.manifest.parent == master.manifest.files
    nothing = ss.sync_master(tmp_path / "m", version=2)
    assert (nothing.values, nothing.how) == (0, "")
    assert nothing.master.manifest == synced.master.manifest
    assert "nothing new" in nothing.describe()
    with pytest.raises(OptionError, match=r"version=1 .* older than version 2.*build_master"):
        ss.sync_master(tmp_path / "m", version=1)
    with pytest.raises(OptionError, match="version 99 cannot be loaded"):
        ss.sync_master(tmp_path / "m", version=99)


def test_delta_partitions_are_columns(tmp_path) -> None:
    table = products(range(60)).append_column("day", pa.array(np.arange(60) % 4, pa.int32()))
    uri = delta(tmp_path / "table", table, feed=False, partition_by=["day"])
    ss.build_master(uri, tmp_path / "m", key=["day", "id"], page_bytes=PAGE)
    DeltaTable(uri).delete("day = 2 AND id > 30")
    synced = ss.sync_master(tmp_path / "m")
    assert synced.deleted == 7
    same_as_built(synced.master, DeltaTable(uri).to_pyarrow_table(), tmp_path / "built")


def test_delta_without_its_old_files_is_compared_row_by_row(tmp_path, caplog) -> None:
    caplog.set_level("INFO", "semistream")
    uri = delta(tmp_path / "table", products(range(4000)), feed=False)
    ss.build_master(uri, tmp_path / "m", key="id", page_bytes=PAGE)
    DeltaTable(uri).update(predicate="id = 77", updates={"name": "'new'"})
    DeltaTable(uri).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    synced = ss.sync_master(tmp_path / "m")
    assert (synced.how, synced.values) == ("all rows", 1)
    assert synced.pages_copied > synced.pages_rewritten
    assert "not by files: " in caplog.text
    same_as_built(synced.master, DeltaTable(uri).to_pyarrow_table(), tmp_path / "built")


def test_delta_that_is_another_table_or_schema_is_refused(tmp_path) -> None:
    uri = delta(tmp_path / "table", products(range(10)), feed=False)
    ss.build_master(uri, tmp_path / "m", key="id")
    more = products([11]).append_column("colour", pa.array(["red"]))
    write_deltalake(uri, more, mode="append", schema_mode="merge")
    assert ss.sync_master(tmp_path / "m").master.schema.names == products([]).column_names
    other = products(range(10)).set_column(0, "id", pa.array(map(str, range(10))))
    write_deltalake(uri, other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaError, match=r"id: string.*Build the master again"):
        ss.sync_master(tmp_path / "m")
    less = other.drop_columns(["tags"])
    write_deltalake(uri, less, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaError, match=r"lost .* no column 'tags'.*Build the master again"):
        ss.sync_master(tmp_path / "m")
    shutil.rmtree(uri)
    delta(tmp_path / "table", products(range(10)), feed=False)
    with pytest.raises(OptionError, match="made anew there; build the master again"):
        ss.sync_master(tmp_path / "m")
    shutil.rmtree(uri)
    with pytest.raises(OptionError, match="does not exist"):
        ss.sync_master(tmp_path / "m")


def test_a_column_that_is_not_taken_may_come(tmp_path) -> None:
    uri = delta(tmp_path / "table", products(range(10)), feed=True)
    ss.build_master(uri, tmp_path / "m", key="id", columns=["id", "name"])
    more = products([11]).append_column("colour", pa.array(["red"]))
    write_deltalake(uri, more, mode="append", schema_mode="merge")
    assert ss.sync_master(tmp_path / "m").master.rows == 11


def test_delta_with_mapped_columns_is_compared_row_by_row(tmp_path) -> None:
    uri, mapped = str(tmp_path / "table"), {"delta.columnMapping.mode": "name"}
    write_deltalake(uri, products(range(100)), configuration=FEED | mapped)
    assert ss.build_master(uri, tmp_path / "m", key="id", page_bytes=PAGE).rows == 100
    write_deltalake(uri, products([100], 1), mode="append")
    synced = ss.sync_master(tmp_path / "m")
    assert (synced.how, synced.upserted) == ("all rows", 1)
    wanted = pa.concat_tables([products(range(100)), products([100], 1)])
    same_as_built(synced.master, wanted, tmp_path / "built")


def test_the_librarys_own_table_is_a_source(tmp_path) -> None:
    uri = delta(tmp_path / "table", products(range(10)), feed=False)
    old = DeltaTable(uri)
    write_deltalake(uri, products([10]), mode="append")
    assert ss.build_master(old, tmp_path / "m", key="id").rows == 10
    assert ss.sync_master(tmp_path / "m", source=DeltaTable(uri)).master.rows == 11


# Iceberg


@pytest.fixture
def catalog(tmp_path):
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    catalog.create_namespace("shop")
    yield catalog
    catalog.close()


def iceberg_steps(table, make):
    yield "append", table.append(make(range(400, 450), 1))
    yield "delete", table.delete("id >= 20 and id < 30")
    yield "overwrite", table.overwrite(make(range(100, 160), 2), overwrite_filter="id > 120")
    if make is products:
        yield "upsert", table.upsert(make(range(90, 480, 10), 3), ["id"])
    yield "replace", table.overwrite(make(range(50, 300), 4))


@pytest.mark.parametrize("make", [products, duplicated])
def test_iceberg_follows_every_kind_of_change(tmp_path, catalog, make) -> None:
    table = catalog.create_table("shop.products", make([]).schema)
    path = tmp_path / "master"
    assert ss.build_master(table, path, key="id", page_bytes=PAGE).rows == 0
    table.append(make(range(400)))
    assert ss.sync_master(path, source=table).master.rows == 400
    for step, (what, _) in enumerate(iceberg_steps(table, make)):
        synced = ss.sync_master(path, source=table)
        assert synced.how == "files", what
        assert synced.version == table.current_snapshot().snapshot_id
        same_as_built(synced.master, table.scan().to_arrow(), tmp_path / f"built {step}")
    assert ss.sync_master(path, source=table).values == 0


def test_iceberg_whose_column_has_the_name_of_another(tmp_path, catalog) -> None:
    prices = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("list", pa.float64())])
    table = catalog.create_table("shop.products", prices)
    table.append(pa.table({"id": [1, 2], "price": [1.0, 2.0], "list": [10.0, 20.0]}))
    ss.build_master(table, tmp_path / "m", key="id", columns=["id", "price"])
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("price")
    with table.update_schema() as update:
        update.rename_column("list", "price")
    table.append(pa.table({"id": [3], "price": [30.0]}))
    synced = ss.sync_master(tmp_path / "m", source=table)
    assert synced.how == "all rows"
    same_as_built(synced.master, table.scan().to_arrow(), tmp_path / "built")
    table.append(pa.table({"id": [4], "price": [40.0]}))
    assert ss.sync_master(tmp_path / "m", source=table).how == "files"
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("price")
    table.append(pa.table({"id": [5]}))
    with pytest.raises(SchemaError, match=r"no column 'price'.*Build the master again"):
        ss.sync_master(tmp_path / "m", source=table)


def test_iceberg_by_metadata_file_and_by_snapshot(tmp_path, catalog) -> None:
    table = catalog.create_table("shop.products", products([]).schema)
    table.append(products(range(10)))
    first = table.current_snapshot().snapshot_id
    table.append(products(range(10, 14)))
    place = table.metadata_location
    assert ss.build_master(place, tmp_path / "a", key="id", columns=["id", "name"]).rows == 14
    assert ss.build_master(place, tmp_path / "b", key="id", version=first).rows == 10
    with pytest.raises(OptionError, match=r"no snapshot has the id version=5; the last: \d+"):
        ss.build_master(place, tmp_path / "c", key="id", version=5)
    with pytest.raises(OptionError, match="no Iceberg table can be loaded"):
        ss.sync_master(tmp_path / "b")
    assert ss.sync_master(tmp_path / "b", source=place).master.rows == 14
    with pytest.raises(OptionError, match="older than"):
        ss.sync_master(tmp_path / "b", version=first, source=place)


def test_iceberg_by_the_name_in_a_catalog(tmp_path, catalog, monkeypatch) -> None:
    table = catalog.create_table("shop.products", PRODUCTS)
    table.append(products(range(10)))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", catalog.properties["uri"])
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, at the import
    master = ss.build_master("iceberg://lake/shop.products", tmp_path / "m", key="id")
    assert master.manifest.source["uri"] == "iceberg://lake/shop.products"
    assert "sqlite" not in (tmp_path / "m" / "manifest.json").read_text()
    table.append(products(range(10, 14)))
    assert ss.sync_master(tmp_path / "m").master.rows == 14


def test_iceberg_without_its_old_snapshot_is_compared_row_by_row(tmp_path, catalog) -> None:
    table = catalog.create_table("shop.products", products([]).schema)
    table.append(products(range(100)))
    ss.build_master(table, tmp_path / "m", key="id")
    old = table.current_snapshot().snapshot_id
    table.delete("id < 10")
    table.maintenance.expire_snapshots().by_id(old).commit()
    synced = ss.sync_master(tmp_path / "m", source=table)
    assert (synced.how, synced.deleted) == ("all rows", 10)


def test_iceberg_columns_are_those_of_now_unless_a_snapshot_is_asked_for(tmp_path, catalog) -> None:
    columns = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("gone", pa.string())])
    table = catalog.create_table("shop.products", columns)
    table.append(pa.table({"id": [1, 2], "price": [1.0, 2.0], "gone": ["x", "y"]}))
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("price", "unit_price")
        update.delete_column("gone")
        update.add_column("colour", StringType())
    now = ss.build_master(table, tmp_path / "now", key="id", page_bytes=PAGE)
    assert now.schema.names == ["id", "unit_price", "colour"]
    same_as_built(now, table.scan().to_arrow().cast(now.schema), tmp_path / "built")
    some = ss.build_master(table, tmp_path / "some", key="id", columns=["id", "unit_price"])
    assert some.schema.names == ["id", "unit_price"]
    then = table.current_snapshot().snapshot_id
    old = ss.build_master(table, tmp_path / "then", key="id", version=then)
    assert old.schema.names == ["id", "price", "gone"]
    table.append(pa.table({"id": [3], "unit_price": [3.0], "colour": ["red"]}))
    synced = ss.sync_master(tmp_path / "now", source=table)
    assert (synced.how, synced.upserted) == ("files", 1)
    wanted = table.scan().to_arrow().cast(now.schema)
    same_as_built(synced.master, wanted, tmp_path / "built again")


def test_what_a_store_of_iceberg_raises_is_said_without_secrets(
    tmp_path, catalog, monkeypatch
) -> None:
    table = catalog.create_table("shop.products", products([]).schema)
    table.append(products(range(10)))
    ss.build_master(table, tmp_path / "m", key="id")
    table.append(products(range(10, 14)))

    def away(*_: object) -> None:
        msg = "s3://KEY:SECRET@bucket/x: slow down"
        raise RuntimeError(msg)  # the errors of stores have nothing in common

    with monkeypatch.context() as patched:
        patched.setattr(Iceberg, "_read", away)
        with pytest.raises(MasterError, match=r"cannot be read \(s3://bucket/x: slow down\)"):
            ss.sync_master(tmp_path / "m", source=table)
    assert ss.sync_master(tmp_path / "m", source=table).master.rows == 14


# Places


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_place_that_cannot_be_looked_at_is_not_taken_for_files(tmp_path, scheme) -> None:
    with pytest.raises(OptionError, match=r"xx' cannot be reached: .*File name too long"):
        ss.build_master(f"{scheme}{tmp_path}/{'x' * 300}", tmp_path / "m", key="id")


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("s3://KEY:SECRET@bucket/x?region=eu", "s3://bucket/x?region=eu"),
        ("s3://KEY:SEC/RET@bucket/x", "s3://bucket/x"),
        ("s3://KEY:SEC@RET@bucket/a@b", "s3://bucket/a@b"),
        ("abfs://box:SECRET@acc.dfs.core.windows.net/x", "abfs://box@acc.dfs.core.windows.net/x"),
        ("abfs://acc.net/x?client_secret=SECRET&y=1", "abfs://acc.net/x?client_secret=&y=1"),
        ("abfss://box@acc.dfs.core.windows.net/x", "abfss://box@acc.dfs.core.windows.net/x"),
        ("gs://anonymous@bucket/x", "gs://anonymous@bucket/x"),
        ("hdfs://host:9000/a@b", "hdfs://host:9000/a@b"),
        ("/folder/a:b@c", "/folder/a:b@c"),
    ],
)
def test_secrets_are_not_part_of_a_place(uri, plain) -> None:
    assert without_secrets(uri) == plain


def test_secrets_are_neither_kept_nor_said(tmp_path) -> None:
    pq.write_table(products(range(3)), tmp_path / "a.parquet")
    files = ParquetFiles.open(str(tmp_path / "a.parquet"), None)
    assert replace(files, uri="s3://KEY:SECRET@bucket/x").note["uri"] == "s3://bucket/x"
    for place in ("none://KEY:SECRET@bucket/x", "none://KEY:SEC/RET@bucket/x.metadata.json"):
        with pytest.raises(OptionError, match="none://bucket/x") as raised:
            ss.build_master(place, tmp_path / "m", key="id")
        assert "RET" not in str(raised.value)


def test_a_table_of_another_kind_is_named(tmp_path) -> None:
    uri = delta(tmp_path / "table", products(range(10)), feed=False)
    ss.build_master(uri, tmp_path / "m", key="id")
    shutil.rmtree(tmp_path / "table" / "_delta_log")
    with pytest.raises(OptionError, match=r"table' is of kind parquet, .* built from delta"):
        ss.sync_master(tmp_path / "m")


# Parquet


def test_a_parquet_folder_by_its_files(tmp_path) -> None:
    folder = tmp_path / "files"
    pq.write_to_dataset(products(range(3000)), folder, basename_template="a-{i}.parquet")
    ss.build_master(folder, tmp_path / "m", key="id", page_bytes=PAGE)
    assert ss.sync_master(tmp_path / "m").values == 0
    pq.write_table(products(range(3000, 3010)), folder / "b.parquet")
    synced = ss.sync_master(tmp_path / "m")
    assert (synced.how, synced.upserted, synced.pages_rewritten) == ("files", 10, 1)
    pq.write_table(products([*range(3000, 3005), 3007], 1), folder / "b.parquet")
    synced = ss.sync_master(tmp_path / "m")
    assert (synced.how, synced.values, synced.deleted) == ("all rows", 9, 4)
    assert synced.pages_copied > synced.pages_rewritten
    same_as_built(synced.master, pq.read_table(folder), tmp_path / "built")
    with pytest.raises(OptionError, match="without versions"):
        ss.sync_master(tmp_path / "m", version=2)


def test_a_disk_that_is_full_is_no_reason_to_read_more(tmp_path) -> None:
    folder, read = tmp_path / "files", set()
    pq.write_to_dataset(products(range(3000)), folder, basename_template="a-{i}.parquet")
    ss.build_master(folder, tmp_path / "m", key="id", page_bytes=PAGE)
    pq.write_table(products(range(3000, 3010)), folder / "b.parquet")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            ss.sync_master(tmp_path / "m", progress=lambda p: read.add((p.phase, p.rows)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {rows for phase, rows in read if phase == "read"} == {10}
    assert ss.sync_master(tmp_path / "m").how == "files"


def test_a_parquet_folder_with_partitions(tmp_path) -> None:
    folder = tmp_path / "files"
    table = products(range(40)).append_column("day", pa.array(np.arange(40) % 4, pa.int32()))
    pq.write_to_dataset(table, folder, partition_cols=["day"])
    ss.build_master(folder, tmp_path / "m", key="id", columns=["id", "day"])
    shutil.rmtree(folder / "day=1")
    (folder / "day=9").mkdir()
    pq.write_table(products(range(40, 44)), folder / "day=9" / "x.parquet")
    synced = ss.sync_master(tmp_path / "m")
    wanted = pq.read_table(folder).select(["id", "day"]).cast(synced.master.schema)
    same_as_built(synced.master, wanted, tmp_path / "built")
