"""Look-ups in Spark's JVM: the same rows as by Python, whatever the keys and the columns are."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import random
import re
import shutil
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import semistream as ss
from semistream.arrow import keys as key_codes
from semistream.arrow.keys import Keys
from semistream.errors import OptionError
from semistream.master.build import target
from semistream.master.files.format import MANIFEST
from semistream.spark.cluster.context_state import state_of
from semistream.spark.enrich import probe
from semistream.spark.jvm import classes, lookup
from semistream.spark.jvm.classes import ClassesError, add_classes, java_object
from semistream.spark.jvm.description import describe_snapshot, directory_bytes
from semistream.spark.types import transfer_type
from support.forgery import forge
from support.frames import rows_of, rows_of_each
from support.matrix import ALL

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark's own
]

ROWS = 3_000
rng = np.random.default_rng(5)
enrich = partial(ss.enrich, memory="16MB", check=False)


def expected(stream: list, master: pa.Table, key: str, how: str = "left") -> list[tuple]:
    """Join in plain Python."""
    payload = [name for name in master.column_names if name != key]
    known = {row[key]: tuple(row[name] for name in payload) for row in master.to_pylist()}
    found = [(k, known.get(k) if k is not None else None) for k in stream]
    if how in {"semi", "anti"}:
        return sorted([(k,) for k, row in found if (row is None) == (how == "anti")], key=repr)
    absent = [] if how == "inner" else [(k, *[None] * len(payload)) for k, r in found if r is None]
    return sorted([*((k, *row) for k, row in found if row is not None), *absent], key=repr)


def stream_of(spark, tmp_path, keys: pa.Array):
    pq.write_table(pa.table({"k": keys}), tmp_path / "stream.parquet")
    return spark.read.parquet(str(tmp_path / "stream.parquet"))


def names(count: int) -> list[str]:
    return [f"{i:x}-" * (1 + i % 6) for i in range(count)]


def some_null(values, kind) -> pa.Array:
    return pa.array(values, kind, mask=rng.random(len(values)) < 0.2)


def columns(count: int) -> dict[str, pa.Array]:
    """Make a column of every type that Java reads, a fifth of each null."""
    numbers = rng.integers(-(2**62), 2**62, count)
    texts = ["", "é", "語" * 40, *names(count - 3)]
    money = [Decimal(int(n)) / 100 for n in numbers]
    vast = [Decimal(int(n)) * 10**18 + 7 for n in numbers]
    instants = rng.integers(-(10**15), 10**15, count)
    return {
        "flag": some_null(numbers % 2 == 0, pa.bool_()),
        "tiny": some_null(numbers % 128, pa.int8()),
        "short": some_null(-(numbers % 2**15), pa.int16()),
        "int": some_null(-(numbers % 2**31), pa.int32()),
        "long": some_null(numbers, pa.int64()),
        "u8": some_null(numbers % 256, pa.uint8()),
        "u16": some_null(numbers % 2**16, pa.uint16()),
        "u32": some_null(numbers % 2**32, pa.uint32()),
        "single": some_null((numbers % 1000).astype(np.float32), pa.float32()),
        "double": some_null(numbers / 7, pa.float64()),
        "text": some_null(texts, pa.string()),
        "wide": some_null(texts, pa.large_string()),
        "bytes": some_null([t.encode() for t in texts], pa.binary()),
        "wide_bytes": some_null([t.encode() for t in texts], pa.large_binary()),
        "told": some_null(texts, pa.string()).dictionary_encode(),
        "day": some_null(numbers % 20_000, pa.int32()).cast(pa.date32()),
        "money": some_null(money, pa.decimal128(20, 2)),
        "cents": some_null([Decimal(int(n % 10**9)) / -100 for n in numbers], pa.decimal128(12, 2)),
        "vast": some_null(vast, pa.decimal128(38, 0)),
        "micros": some_null(instants, pa.timestamp("us")),
        "millis": some_null(instants // 1000, pa.timestamp("ms")),
        "seconds": some_null(instants // 10**6, pa.timestamp("s")),
        "nanos": some_null(instants, pa.timestamp("ns")),
    }


def test_columns_of_all_types_with_nulls(spark, tmp_path):
    table = pa.table({"k": np.arange(ROWS) * 3 - 1000, **columns(ROWS)})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes="8KB")
    stream = stream_of(spark, tmp_path, pa.array(rng.integers(-1010, 3 * ROWS, 2 * ROWS)))
    by_java = enrich(stream, master, on="k", how="left", transfer="none")
    by_python = enrich(stream, master, on="k", how="left", transfer="rows")
    assert by_java.schema == by_python.schema
    assert rows_of(by_java) == rows_of(by_python)
    found = {row["k"]: row for row in by_java.where("long is not null").collect()}
    for row in table.to_pylist():
        if row["long"] is not None and row["k"] in found:
            got = found[row["k"]]
            assert (got["long"], got["text"], got["vast"], got["u32"]) == (
                *(row["long"], row["text"], row["vast"], row["u32"]),
            )


HOW = ["left", "inner", "semi", "anti"]
KEYS = {
    "even": np.arange(ROWS) * 7 - 500,
    "dense": np.arange(ROWS),
    "scattered": np.unique(rng.integers(-(2**62), 2**62, ROWS)),
    "lumps": np.unique(np.concatenate([np.arange(900), 2**60 + np.arange(900) ** 2, [-(2**63)]])),
    "ends": np.array([-(2**63), -1, 0, 1, 2**63 - 1]),
    "one": np.array([42]),
    "none": np.array([], np.int64),
}


@pytest.mark.parametrize("name", KEYS)
def test_integer_keys_however_they_lie(spark, tmp_path, name):
    keys = KEYS[name]
    table = pa.table({"k": keys, "n": np.arange(len(keys))})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes="4KB")
    near = [k + d for k in keys.tolist() for d in (-1, 0, 1) if -(2**63) <= k + d < 2**63]
    asked = [*near, None, 0, -(2**63), 2**63 - 1]
    stream = stream_of(spark, tmp_path, pa.array(asked, pa.int64()))
    found = {how: enrich(stream, master, on="k", how=how, transfer="none") for how in HOW}
    for how, rows in rows_of_each(found).items():
        assert rows == expected(asked, table, "k", how), how


def test_integers_of_any_width_go_together(spark, tmp_path):
    table = pa.table({"k": pa.array(range(100), pa.uint16()), "n": np.arange(100)})
    master = ss.build_master(table, tmp_path / "m", key="k")
    asked = [-1, 0, 7, 99, 100, None]
    found = {}
    for kind in (pa.int8(), pa.int16(), pa.int32()):
        (tmp_path / str(kind)).mkdir()
        stream = stream_of(spark, tmp_path / str(kind), pa.array(asked, kind))
        found[kind] = enrich(stream, master, on="k", how="left", transfer="none")
    for kind, rows in rows_of_each(found).items():
        assert rows == expected(asked, table, "k"), kind


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_keys_of_texts_and_bytes(spark, tmp_path, kind):
    texts = list(dict.fromkeys(["", "é", "語" * 300, *names(ROWS)]))
    keys = [t.encode() for t in texts] if kind == pa.binary() else texts
    present, absent = keys[::2], keys[1::2]
    table = pa.table({"k": pa.array(present, kind), "n": np.arange(len(present))})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes="4KB")
    asked = [*present, *present[:50], *absent, None]
    stream = stream_of(spark, tmp_path, pa.array(asked, kind))
    found = {how: enrich(stream, master, on="k", how=how, transfer="none") for how in HOW}
    for how, rows in rows_of_each(found).items():
        assert rows == expected(asked, table, "k", how), how


@pytest.mark.parametrize("asked", [17, 35], ids=["there", "absent"])
def test_keys_with_one_code_are_told_apart(spark, tmp_path, monkeypatch, asked):
    """Every row of the master has the code that Java computes for the key that is asked for."""
    keys = [f"key {i}".encode() * 3 for i in range(40)]
    table = pa.table({"k": pa.array(keys[:30]), "n": np.arange(30)})
    monkeypatch.setattr(target, "_seed", lambda *_: 7 << 64 | 3)
    with monkeypatch.context() as patch:
        code = Keys.of(table.schema, ["k"], 7 << 64 | 3).encode([pa.array([keys[asked]])]).values
        patch.setattr(key_codes, "_hashes", lambda columns, _: np.repeat(code, len(columns[0])))
        master = ss.build_master(table, tmp_path / "m", key="k")
    stream = stream_of(spark, tmp_path, pa.array([keys[asked]]))
    for how in ("semi", "anti"):  # by its codes the master may have several rows a key
        found = enrich(stream, master, on="k", how=how, transfer="none")
        assert rows_of(found) == expected([keys[asked]], table, "k", how)


def test_semi_and_anti_joins_with_several_rows_a_key(spark, tmp_path):
    table = pa.table({"k": np.arange(900) // 3 * 2, "n": np.arange(900)})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes="4KB")
    asked = [*range(700), None]
    stream = stream_of(spark, tmp_path, pa.array(asked))
    for how in ("semi", "anti"):
        found = enrich(stream, master, on="k", how=how, transfer="none")
        assert rows_of(found) == expected(asked, table, "k", how)


def test_a_plan_has_no_python_and_asks_once_a_row(spark, tmp_path, master, capsys):
    found = enrich(spark.range(10).toDF("k"), master, on="k", how="left", transfer="none")
    found.select("n", "name").explain()
    plan = capsys.readouterr().out
    assert plan.count("Python") == plan.count("ArrowEval") == 0
    assert plan.count(".find(") == 1


@pytest.fixture
def master(tmp_path):
    table = pa.table({"k": np.arange(ROWS) * 2, "n": np.arange(ROWS), "name": names(ROWS)})
    return ss.build_master(table, tmp_path / "products", key="k", page_bytes="4KB")


# -- what is chosen, and why ---------------------------------------------------------------


def test_it_is_chosen_where_it_can_be(spark, master, caplog):
    with caplog.at_level(logging.INFO, "semistream.spark.enrich.enrichment"):
        enrich(spark.range(10).toDF("k"), master, on="k", how="left")
    assert (
        "transfer=none (one answer a row, and Java reads pages that lie in memory)" in caplog.text
    )


@pytest.mark.parametrize("free", [1 << 40, 1_000])
def test_pages_without_room_in_memory_are_read_directly(free, spark, master, monkeypatch, caplog):
    monkeypatch.setattr(probe, "free_memory", lambda: free)
    monkeypatch.setattr(type(master.reader()), "held", lambda _: 0.0)
    stream = spark.range(2 * ROWS).toDF("k")
    with caplog.at_level(logging.INFO, "semistream.spark.enrich.enrichment"):
        rows = enrich(stream, master.path, on="k", how="left", select=["n"], check=True)
    where = "mapped" if free > 1_000 else "direct"
    assert f"read={where}" in caplog.text
    assert ("transfer=none" in caplog.text) == (where == "mapped")
    found = {row["k"]: row["n"] for row in rows.collect()}
    assert found == {k: k // 2 if k % 2 == 0 and k < 2 * ROWS else None for k in range(2 * ROWS)}
    caplog.clear()
    with caplog.at_level(logging.INFO, "semistream.spark.enrich.enrichment"):
        enrich(stream, master.path, on="k", read="mapped", check=True)
    assert "read=mapped" in caplog.text


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"read": "direct"}, "read='direct' is done in Python"),
        ({"algorithm": "cachejoin"}, "a chosen algorithm"),
        ({"localize": True}, "copies of the master on hosts"),
        ({"how": "left", "on_missing": "error"}, "on_missing='error' tells the keys"),
    ],
    ids=str,
)
def test_why_it_is_not_possible_is_told(spark, master, wish, why):
    with pytest.raises(OptionError, match=why):
        enrich(spark.range(10).toDF("k"), master.path, on="k", transfer="none", **wish)


def test_what_python_must_compare_or_convert_is_told(spark, tmp_path):
    kinds = {
        "id": pa.array([1, 2], pa.uint64()),
        "day": pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2)]),
        "n": pa.array([1, 2]),
        "list": pa.array([[1], []]),
    }
    table, days = pa.table(kinds), spark.sql("SELECT date'2020-01-01' AS day, 1L AS n")
    for key, why in {"day": "keys of type date are", ("n", "day"): "several columns"}.items():
        names = [key] if isinstance(key, str) else list(key)
        master = ss.build_master(table, tmp_path / "-".join(names), key=names)
        with pytest.raises(OptionError, match=why):
            enrich(days, master, on=names, transfer="none", prefix="m_")
        assert enrich(days, master, on=names, how="left", prefix="m_").count() == 1
    master = ss.build_master(table, tmp_path / "id", key="n")
    with pytest.raises(OptionError, match=r"the column 'list' of type array<.*is converted in Py"):
        enrich(days, master, on="n", transfer="none", select=["day", "list"], prefix="m_")
    assert transfer_type(pa.field("id", pa.uint64())) == pa.decimal128(20, 0)
    with pytest.raises(OptionError, match=r"the column 'id' of type decimal\(20,0\)"):
        enrich(days, master, on="n", transfer="none", select=["id"], prefix="m_")


def test_without_the_classes_keys_pass(spark, master, monkeypatch, caplog):
    def refuse(_):
        raise ClassesError("no compiler here")

    monkeypatch.setattr(lookup, "add_classes", refuse)
    with caplog.at_level(logging.INFO, "semistream.spark.enrich.enrichment"):
        found = enrich(spark.range(10).toDF("k"), master, on="k", how="inner")
    assert "transfer=keys" in caplog.text
    assert found.count() == 5
    with pytest.raises(OptionError, match="no compiler here"):
        enrich(spark.range(10).toDF("k"), master, on="k", transfer="none")


def test_what_does_not_compile_is_an_error_that_names_it(spark, monkeypatch, tmp_path):
    bad = tmp_path / "Bad.java"
    bad.write_text("package semistream; class Bad { int x = nothing; }")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(classes, "_SOURCES", [bad])
    monkeypatch.setattr(state_of(spark), "has_classes", False)
    with pytest.raises(ClassesError, match=f"cannot be had on Spark {spark.version}"):
        add_classes(spark)
    assert not list(tmp_path.rglob("*.jar"))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make the jar of classes in a cache of its own, without Spark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(classes, "_compile", lambda *_: {"semistream/Lookup.class": b"ours"})
    classes._own_folder.cache_clear()
    yield lambda: classes._jar(None, "4.1.3")
    classes._own_folder.cache_clear()


def test_a_jar_in_the_cache_is_taken_only_if_no_one_else_can_have_put_it_there(made, tmp_path):
    jar = made()
    ours = jar.read_bytes()
    assert jar.is_relative_to(tmp_path / "cache")
    assert made() == jar
    planted = tmp_path / "planted.jar"
    planted.write_bytes(b"evil")
    jar.unlink()
    jar.symlink_to(planted)
    assert (made().read_bytes(), made().is_symlink()) == (ours, False)
    jar.write_bytes(b"evil")
    jar.chmod(0o666)
    assert made().read_bytes() == ours
    assert planted.read_bytes() == b"evil"


@pytest.mark.parametrize("open_to_all", ["semistream", "semistream/classes"])
def test_a_cache_that_others_can_write_to_is_not_used(made, tmp_path, open_to_all, caplog):
    planted = made()
    planted.write_bytes(b"evil")
    (tmp_path / "cache" / open_to_all).chmod(0o777)
    jar = made()
    assert not jar.is_relative_to(tmp_path / "cache")
    assert (jar.parent.stat().st_mode & 0o077, jar.read_bytes() == b"evil") == (0, False)
    assert "others can write there" in caplog.text


# -- memory, damage, snapshots ---------------------------------------------------------------


def test_what_java_holds_is_counted(spark, tmp_path):
    """The heap grows by what is planned for pages that were met, and no more."""
    count = 400_000
    table = pa.table({"k": np.arange(count) ** 2 % (2**61), "n": np.arange(count)})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes="4KB")
    planned = directory_bytes(master, ["n"])
    add_classes(spark)
    told, jvm = describe_snapshot(master, ["n"]), spark._jvm
    texts = jvm.org.apache.spark.unsafe.types.UTF8String
    runtime, reader = jvm.java.lang.Runtime.getRuntime(), java_object(spark, "Lookup", "measured")
    snapshot = texts.fromString(told)

    def used():
        for _ in range(3):
            jvm.java.lang.System.gc()
        return runtime.totalMemory() - runtime.freeMemory()

    before = used()
    for code in master.index.page_code.tolist():
        assert reader.find(snapshot, code) >= 0
    grown = used() - before
    assert planned > 100_000
    assert grown <= planned + 300_000  # the heap of a test's session is never quite the same


def test_a_budget_that_is_too_small_for_java_is_told(spark, tmp_path):
    count = 400_000
    table = pa.table({"k": np.arange(count), "n": np.arange(count)})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes="4KB")
    with pytest.raises(OptionError, match=r"it would hold .* of memory=100 KB"):
        enrich(spark.range(10).toDF("k"), master, on="k", memory="100KB", tasks=1, transfer="none")


def test_a_damaged_page_is_an_error_that_names_it(spark, master):
    pages = next(master.path.glob("*.pages"))
    found = enrich(spark.range(ROWS).toDF("k"), master.path, on="k", transfer="none")
    with pages.open("r+b") as file:
        file.seek(4096 * 3 + 1000)
        file.write(b"\xff\x00\xff")
    with pytest.raises(Py4JError, match="page 3 is damaged, its checksum differs"):
        found.collect()


def refusal(spark, told: str, keys) -> str:
    try:
        find_all(spark, told, keys)
    except Py4JError as error:
        return str(error)
    return ""


def find_all(spark, told: str, keys) -> None:
    """Have Java look keys up in a snapshot, and read every column of the rows."""
    texts = spark._jvm.org.apache.spark.unsafe.types.UTF8String
    found, snapshot = java_object(spark, "Lookup", "forged"), texts.fromString(told)
    for key in keys:
        row = found.row(snapshot, found.find(snapshot, key))
        if row is not None:
            row.anyNull()
            for column in (1, 2):
                str(row.getBinary(column)) if not row.isNullAt(column) else None
            str(row.getLong(0))


def test_a_master_that_lies_gives_other_values_or_an_error(spark, tmp_path):
    """Python refuses some of these: Java is told of what was there before."""
    count = 400
    name = [None if i % 9 == 0 else f"name {i}" for i in range(count)]
    table = {"k": np.arange(count) * 3, "n": np.arange(count), "name": name, "text": name}
    table["text"] = pa.array(name, pa.large_string())
    ss.build_master(pa.table(table), tmp_path / "built", key="k", page_bytes="4KB")
    add_classes(spark)
    chance, refused = random.Random(5), 0  # noqa: S311
    cases = 150 if ALL else 50
    for case in range(cases):
        folder = tmp_path / str(case)
        shutil.copytree(tmp_path / "built", folder)
        told = describe_snapshot(ss.open_master(folder), ["n", "name", "text"])
        what = forge(folder, chance)
        checksum = json.loads((folder / MANIFEST).read_bytes())["index_checksum"]
        told = re.sub(r"index_checksum=\d+", f"index_checksum={checksum}", told)
        why = refusal(spark, told, range(0, 3 * count, 37))
        assert not why or "build the master again" in why, what
        refused += bool(why)
    assert refused > cases // 8


def stream_files(folder, batches: int):
    folder.mkdir()
    for i in range(batches):
        pq.write_table(pa.table({"k": np.arange(100) * 2}), folder / f"{i}.parquet")
    return str(folder)


def test_a_stream_takes_up_new_snapshots_between_batches_and_is_counted(spark, tmp_path):
    """Each batch reads one snapshot, the newest when it begins; a replay reads the same one."""
    path, told = tmp_path / "m", []

    def build(version):
        rows = {"k": np.arange(90) * 2, "version": np.full(90, version)}
        return ss.build_master(pa.table(rows), path, key="k")

    def write(batch, number):
        versions = {row.version for row in batch.select("version").distinct().collect()}
        told.append((number, versions - {None}))
        build(number + 1)

    build(0)
    source = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1)
    df = source.parquet(stream_files(tmp_path / "stream", 4))
    seen = []
    ss.watch(spark, seen.append)
    joined = enrich(df, path, on="k", how="left", transfer="none", name="versions")
    writer = joined.writeStream.foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert told == [(n, {n}) for n in range(4)]
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    mine = [m for m in seen if m.name.startswith("versions")]
    assert [(m.rows, m.matched, m.absent, m.null_keys) for m in mine] == [(100, 90, 10, 0)] * 4
    assert all(m.hit_rate == 1 and 0 < m.held(2) <= m.budget for m in mine)


def test_a_replayed_batch_reads_the_snapshot_that_it_was_begun_with(spark, tmp_path):
    path, told = tmp_path / "m", []

    def build(version):
        rows = {"k": np.arange(90) * 2, "version": np.full(90, version)}
        ss.build_master(pa.table(rows), path, key="k")

    def write(batch, number):
        told.append((number, {row.version for row in batch.where("k < 100").collect()}))
        if len(told) == 1:
            build(1)
            raise RuntimeError("fails after it has begun")

    build(0)
    df = spark.readStream.schema("k long").parquet(stream_files(tmp_path / "stream", 1))
    for _ in range(2):
        joined = enrich(df, path, on="k", how="left", transfer="none")
        writer = joined.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        except PySparkException:
            continue
    assert told == [(0, {0}), (0, {0})]


def test_a_master_that_comes_to_have_several_rows_a_key_ends_the_query(spark, tmp_path):
    path = tmp_path / "m"
    ss.build_master(pa.table({"k": [2, 4], "n": [1, 2]}), path, key="k")
    df = spark.readStream.schema("k long").parquet(stream_files(tmp_path / "stream", 1))
    joined = enrich(df, path, on="k", how="left", transfer="none")
    ss.build_master(pa.table({"k": [2, 2], "n": [1, 2]}), path, key="k")
    writer = joined.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match="has come to have up to 2 rows a key"):
        query.awaitTermination()


def test_defaults_status_and_chains_are_as_by_python(spark, tmp_path, master):
    stream = spark.range(0, 200).toDF("k")
    other = ss.build_master(
        pa.table({"n": np.arange(0, 100, 3), "m": np.arange(34)}), tmp_path / "other", key="n"
    )

    def chained(transfer):
        wish = {"how": "left", "transfer": transfer}
        first = enrich(stream, master, on="k", status="s", on_missing={"n": -5}, **wish)
        first = first.withColumn("n", F.col("n").cast("int"))
        return enrich(first, other, on="n", on_missing="drop", prefix="x_", **wish)

    assert rows_of(chained("none")) == rows_of(chained("rows"))
    assert chained("none").count() == 34


def test_a_folder_for_classes_may_have_any_name(spark, tmp_path, monkeypatch, master):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b+c@d é%20"))
    monkeypatch.setattr(state_of(spark), "has_classes", False)
    add_classes(spark)
    assert len(list(tmp_path.rglob("semistream-*.jar"))) == 1
    found = enrich(spark.range(10).toDF("k"), master, on="k", how="inner", transfer="none")
    assert found.count() == 5


def test_a_damaged_index_is_an_error_that_names_it(spark, master):
    found = enrich(spark.range(ROWS).toDF("k"), master.path, on="k", transfer="none")
    told = describe_snapshot(master, ["n", "name"])
    index = next(master.path.glob("*.index"))
    with index.open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff\x00\xff")
    texts = spark._jvm.org.apache.spark.unsafe.types.UTF8String
    with pytest.raises(Py4JError, match="index is damaged, its checksum differs"):
        java_object(spark, "Lookup", "damaged").find(texts.fromString(told), 0)
    assert found.columns == ["k", "n", "name"]


def test_an_old_table_is_kept_no_longer_than_an_enrichment_asks_for_it(spark, tmp_path):
    add_classes(spark)
    texts = spark._jvm.org.apache.spark.unsafe.types.UTF8String
    lookup_class = spark._jvm.Thread.currentThread().getContextClassLoader()
    field = lookup_class.loadClass("semistream.Lookup").getDeclaredField("OPEN")
    field.setAccessible(True)
    told = []
    for version in range(3):
        table = pa.table({"k": [1, 2], "n": [version, version]})
        snapshot = ss.build_master(table, tmp_path / f"m{version}", key="k")
        told.append(describe_snapshot(snapshot, ["n"]))
        for name in ("kept", "other") if version == 0 else ("kept",):
            reader = java_object(spark, "Lookup", name)
            assert reader.find(texts.fromString(told[-1]), 2) >= 0
    held = set(field.get(None).keySet())
    assert {told[0], told[2]} <= held  # of the other, and the newest
    assert told[1] not in held


def test_a_query_that_can_pin_no_longer_is_ended(spark, tmp_path, monkeypatch):
    path = tmp_path / "m"
    ss.build_master(pa.table({"k": [2, 4], "n": [1, 2]}), path, key="k")
    df = spark.readStream.schema("k long").parquet(stream_files(tmp_path / "stream", 1))
    joined = enrich(df, path, on="k", how="left", transfer="none")
    monkeypatch.setattr(lookup, "snapshot_files", lambda *_: "")
    writer = joined.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match="snapshots cannot be pinned there any more"):
        query.awaitTermination()


def test_a_batch_that_runs_again_holds_its_snapshot_on(spark, tmp_path):
    path = tmp_path / "m"
    ss.build_master(pa.table({"k": [2, 4], "n": [1, 2]}), path, key="k")
    found = enrich(spark.range(5).toDF("k"), path, on="k", transfer="none")
    assert rows_of(found.select("k", "n")) == [(2, 1), (4, 2)]
    (held,) = path.glob(".pins/held-*/*")
    os.utime(held, (0, 0))
    assert rows_of(found.select("n")) == [(1,), (2,)]
    assert held.stat().st_mtime > 0
