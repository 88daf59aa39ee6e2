"""Masters built as a Spark job: what a local build makes, whatever fails on the way."""

from __future__ import annotations

import datetime as dt
import errno
import os
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql.pandas.types import from_arrow_schema

import semistream as ss
from semistream.errors import MasterError, OptionError, SchemaError
from semistream.master.build.parts import Part, Staging, join_parts, write_part
from semistream.master.build.target import Target
from semistream.master.files.drafts import staging_folder
from semistream.master.source import Rows
from semistream.spark.types import arrow_schema
from semistream.testing import reference_join, same_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark's own
]

PAGE = 4096
ROWS = 6_000
HOT = 900  # rows of one key: many pages


@contextmanager
def _conf(spark: SparkSession, **settings: object) -> Iterator[None]:
    names = {name: "spark.sql." + name.replace("_", ".") for name in settings}
    before = {name: spark.conf.get(names[name]) for name in settings}
    for name, value in settings.items():
        spark.conf.set(names[name], str(value))
    yield
    for name, value in before.items():
        spark.conf.set(names[name], value)


@pytest.fixture
def ranges(spark: SparkSession) -> Iterator[None]:
    """Three ranges of keys, however few the rows are."""
    few = {"shuffle_partitions": 3, "adaptive_coalescePartitions_enabled": "false"}
    with _conf(spark, **few, session_timeZone="Asia/Tokyo"):
        yield


def _some(values: list[object], every: int) -> list[object]:
    """Put nulls among the values."""
    return [None if i % every == 1 else value for i, value in enumerate(values)]


@cache
def _table() -> pa.Table:
    """Rows in no order, keys of several types with duplicates and nulls, all kinds of columns."""
    rng = np.random.default_rng(5)
    ids = rng.integers(-1500, 1500, ROWS)
    ids[rng.choice(ROWS, HOT, replace=False)] = 77
    n, start = ids.tolist(), dt.datetime(2024, 3, 31, tzinfo=dt.UTC)
    moments = [start + dt.timedelta(hours=i, microseconds=7) for i in n]
    element = pa.field("element", pa.timestamp("us", "UTC"))
    kinds = {
        "id": pa.int32(),
        "name": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "amount": pa.decimal128(20, 3),
        "price": pa.float64(),
        "raw": pa.binary(),
        "nested": pa.struct([("times", pa.list_(element)), ("n", pa.int16())]),
        "by name": pa.map_(pa.string(), pa.float32()),
    }
    columns = [
        _some(n, 50),
        _some([f"näme {i % 400}" for i in n], 70),
        _some([moment.date() for moment in moments], 9),
        _some(moments, 11),
        _some([moment.replace(tzinfo=None) for moment in moments], 13),
        _some([Decimal(i).scaleb(-3) for i in n], 40),
        _some(rng.random(ROWS).tolist(), 7),
        _some([b"\0x" * (i % 30) for i in range(ROWS)], 15),
        _some([{"times": [m, None][: i % 3], "n": i} for i, m in enumerate(moments)], 17),
        _some([[(str(i), 1.5)] * (i % 2) for i in n], 19),
    ]
    pairs = zip(columns, kinds.values(), strict=True)
    return pa.table([pa.array(values, kind) for values, kind in pairs], list(kinds))


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def _content(master: ss.Master) -> pa.Table:
    """Give all rows of a master, in its columns and in order of the code."""
    reader = master.reader()
    batches = [reader.load(part, 1)[0] for part in range(len(master.index.code))]
    # A copy of each: what `load` gave is the reader's.
    table = pa.Table.from_batches([pa.concat_batches([b]) for b in batches], master.page_schema)
    assert table["__code"].to_pylist() == sorted(table["__code"].to_pylist())
    if master.keys.exact:
        key = table["__code"].cast(master.schema.field(master.key[0]).type)
        table = table.append_column(master.key[0], key)
    return table.select(master.schema.names).cast(master.schema)


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def _own_files(master: ss.Master) -> set[str]:
    files = master.manifest.files
    return {"manifest.json", f"{files}.manifest", *master.manifest.names}


def _filter(master: ss.Master) -> list[int]:
    return master.load_filter(master.manifest.filter_words).words.tolist()


@pytest.mark.parametrize("key", ["id", "name", ["amount", "at"]], ids=str)
def test_the_master_is_that_of_a_local_build(key, spark, ranges, tmp_path) -> None:
    table, seen = _table(), []
    df, options = _frame(spark, table), {"page_bytes": PAGE, "progress": seen.append}
    found = ss.build_master(df, tmp_path / "spark", key, **options)
    assert [p.phase for p in seen] == ["read"] * 2 + ["write"] * 3  # so many ranges
    on = [key] if isinstance(key, str) else key
    same_rows(_content(found), df.dropna(subset=on).toArrow().cast(found.schema))
    wanted = ss.build_master(table, tmp_path / "local", key, page_bytes=PAGE)
    assert found.schema.types == wanted.schema.types
    mine, theirs = vars(found.statistics), vars(wanted.statistics)
    cuts = {"pages", "parts", "largest_part"}
    assert {n: v for n, v in mine.items() if n not in cuts} == {
        n: v for n, v in theirs.items() if n not in cuts
    }
    assert theirs["pages"] <= mine["pages"] <= theirs["pages"] + 2  # a page ends with its range
    assert _filter(found) == _filter(wanted)
    assert found.verify() == found.pages
    assert _files(tmp_path / "spark") == _own_files(found)
    _check_join(found, table, on)


def _check_join(master: ss.Master, table: pa.Table, on: list[str]) -> None:
    """Join a stream with present and absent keys, some null, the hot one once."""
    some = [i for i in range(0, ROWS, 40) if table["id"][i].as_py() != 77]
    hot = table["id"].to_pylist().index(77)
    stream = table.select(on).take([*some, hot]).combine_chunks().to_batches()[0]
    wanted = ["price", "day"]
    join = ss.Join(master, stream.schema, on=on, how="left", memory="1MB", select=wanted)
    out = pa.Table.from_batches([*join.offer(stream), *join.drain()])
    sources = pa.Table.from_batches([stream]), table.select([*on, *wanted])
    same_rows(out, reference_join(*sources, on=on, how="left"))


def test_one_range_has_the_snapshot_of_a_local_build(spark, tmp_path) -> None:
    ids = np.random.default_rng(1).permutation(2_000)
    table = pa.table({"id": ids, "name": _some([f"n{i}" for i in ids], 3)})
    with _conf(spark, shuffle_partitions=1):
        found = ss.build_master(_frame(spark, table), tmp_path / "spark", "id", page_bytes=PAGE)
    wanted = ss.build_master(table, tmp_path / "local", "id", page_bytes=PAGE)
    assert found.snapshot == wanted.snapshot


@pytest.mark.parametrize("rows", ["false", "id is null"])
def test_a_master_without_rows(rows, spark, ranges, tmp_path) -> None:
    df = _frame(spark, _table()).where(rows)
    master = ss.build_master(df, tmp_path, ["id", "day"])
    assert (master.rows, master.pages) == (0, 0)
    assert master.statistics.null_keys == df.count()
    assert _content(master).num_rows == 0


def test_odd_names_no_filter_and_progress(spark, ranges, tmp_path) -> None:
    ids = F.col("id")
    df = spark.range(1000).select((ids % 300).alias("a.`b"), ids.alias("c d"), ids.alias("C D"))
    seen: list[ss.master.Progress] = []
    master = ss.build_master(df, tmp_path, "a.`b", filter=False, progress=seen.append)
    assert (master.rows, master.manifest.filter_words) == (1000, 0)
    assert [(p.phase, p.rows, p.total) for p in (seen[0], seen[1], seen[-1])] == [
        ("read", 0, None),
        ("read", 1000, 1000),
        ("write", 1000, 1000),
    ]


def test_timestamps_are_utc_in_every_session(spark, ranges) -> None:
    schema = spark.sql("select current_timestamp() a, localtimestamp() b, current_date() c").schema
    types = [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()]
    assert arrow_schema(schema).types == types


# What fails


BAD = "if(id = 77, raise_error('this row is bad'), id)"


def _no_executors(progress: ss.master.Progress, folder: Path) -> None:
    for path in folder.glob(".draft-*"):
        path.rmdir()  # as if executors had another file system


def _interrupted(progress: ss.master.Progress, folder: Path) -> None:
    if progress.phase == "write":
        assert list(folder.glob(".draft-*/*.pages"))
        raise KeyboardInterrupt


def test_a_build_that_fails_leaves_the_old_master(spark, ranges, tmp_path) -> None:
    df = _frame(spark, _table()).select("id", "name")
    old = ss.build_master(df, tmp_path, "id", page_bytes=PAGE)
    wanted = _content(old)
    bad = df.select("id", F.expr(BAD).alias("name"))
    with pytest.raises(PySparkException, match="this row is bad"):
        ss.build_master(bad, tmp_path, "id")
    for what, error, message in (
        (_no_executors, PySparkException, "do not share the file system"),
        (_interrupted, KeyboardInterrupt, None),
    ):
        with pytest.raises(error, match=message):
            ss.build_master(df, tmp_path, "id", progress=lambda p, f=what: f(p, tmp_path))
        assert _files(tmp_path) == _own_files(old)
    assert ss.open_master(tmp_path).snapshot == old.snapshot
    same_rows(_content(old), wanted)


def test_a_new_build_replaces_the_master_that_others_read(spark, ranges, tmp_path) -> None:
    left = staging_folder(tmp_path)  # by a driver that was killed
    (left / "some.pages").write_bytes(b"x")
    df = _frame(spark, _table()).select("id", "name")
    old = ss.build_master(df, tmp_path, "id")
    assert not left.exists()
    wanted = _content(old)
    new = ss.build_master(df.where("id > 0"), tmp_path, "id")
    assert _content(new)["id"].to_pylist()[0] > 0
    same_rows(_content(old), wanted)
    assert _files(tmp_path) == _own_files(new)


def test_no_folder_is_left_by_a_first_build_that_fails(spark, tmp_path) -> None:
    bad = spark.range(100).select(F.expr(BAD).alias("id"))
    with pytest.raises(PySparkException, match="this row is bad"):
        ss.build_master(bad, tmp_path / "a" / "b", "id")
    assert not (tmp_path / "a").exists()


def test_what_is_refused_before_a_job_starts(spark, tmp_path) -> None:
    stream = spark.readStream.format("rate").load()
    df = spark.sql("select 1 id, interval 2 months as months, double(3) x")
    for source, path, key, error, message in (
        (stream, tmp_path, "value", OptionError, "spark.read instead of spark.readStream"),
        (df.drop("months"), "s3://bucket/master", "id", OptionError, "is a URL"),
        (df, tmp_path, "id", SchemaError, "'months' of type interval month has no counterpart"),
        (df.drop("months"), tmp_path, "x", SchemaError, "cannot be a join key"),
        (df.drop("months"), tmp_path, "ID", SchemaError, "has no column 'ID'; it has: id, x"),
        (df.select("id", "id"), tmp_path, "id", SchemaError, "different names"),
        (df.drop("months"), tmp_path, "id", OptionError, "not a multiple"),
    ):
        size = 5000 if message == "not a multiple" else PAGE
        with pytest.raises(error, match=message):
            ss.build_master(source, path, key, page_bytes=size)
    assert not _files(tmp_path)


# Attempts of a task


def _rows(ids: list[int], bad: bool = False) -> Rows:
    schema = pa.schema([("id", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(ids, pa.int64())], schema=schema)
        if bad:
            raise ConnectionError

    return Rows(pa.RecordBatchReader.from_batches(schema, batches()), None)


def _staging(folder: Path) -> Staging:
    target = Target.of(folder, pa.schema([("id", pa.int64())]), "id", PAGE)
    return Staging(staging_folder(folder), target, 1 << 20, filter=True)


def _ignore(rows: int) -> None:
    pass


def _no_copy(*_: object) -> int:
    raise OSError(errno.EXDEV, "not between these")


@pytest.mark.parametrize("shares", [True, False])
def test_attempts_that_fail_or_come_twice_do_not_count(shares, tmp_path, monkeypatch) -> None:
    if not shares:
        monkeypatch.setattr(os, "copy_file_range", _no_copy)
    to = _staging(tmp_path)
    with pytest.raises(ConnectionError):
        write_part(_rows([1, 2], bad=True), to)
    assert not _files(to.folder)
    parts = [write_part(_rows(ids), to) for ids in ([5, 7], [None, 1, 1], [5, 7], [None])]
    join_parts([parts[2], parts[1], parts[3]], to, _ignore)
    master = ss.open_master(tmp_path)
    assert _content(master)["id"].to_pylist() == [1, 1, 5, 7]
    counts = master.statistics
    assert (counts.values, counts.most_duplicates, counts.null_keys) == (3, 2, 2)
    assert _files(tmp_path) == _own_files(master)


def test_rows_that_are_not_divided_or_not_in_order_are_refused(tmp_path) -> None:
    to = _staging(tmp_path)
    parts = [write_part(_rows(ids), to) for ids in ([1, 5], [5, 7])]
    with pytest.raises(MasterError, match="not divided by key"):
        join_parts(parts, to, _ignore)
    with pytest.raises(MasterError, match="out of order"):
        write_part(_rows([2, 1]), to)
    whole: Part = parts[0]
    to.file(whole.name, "pages").write_bytes(b"cut")
    with pytest.raises(MasterError, match="not all of this part"):
        join_parts([whole], to, _ignore)
