"""Building masters: pages, statistics, snapshots, sources, and what dies half-way."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.arrow.keys import Keys
from semistream.arrow.types import row_bytes
from semistream.errors import BudgetError, MasterError, OptionError, SchemaError
from semistream.master.build import page_size, sort
from semistream.master.build.parts import Staging, join_parts, write_part
from semistream.master.build.sort import ExternalSort
from semistream.master.build.target import Target
from semistream.master.files import drafts as files
from semistream.master.files import master as store
from semistream.master.files.format import Manifest, _json_checksum
from semistream.master.protocol import page_schema
from semistream.master.snapshots import pins
from semistream.master.source import Rows

if TYPE_CHECKING:
    from semistream.master import Progress

PAGE = 4096


def _table(rows: int = 500, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    names = [f"name {i}" * int(rng.integers(9)) for i in range(rows)]
    return pa.table({"id": rng.permutation(rows), "name": names})


def _pages(master: ss.Master) -> list[list[dict[str, object]]]:
    """Give the rows of each page, parts joined."""
    reader = master.reader()
    parts = [master.parts(page) for page in range(master.pages)]
    return [[row for p in ps for row in reader.load(p, 1)[0].to_pylist()] for ps in parts]


def _rows(master: ss.Master) -> list[dict[str, object]]:
    return [row for page in _pages(master) for row in page]


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def _own_files(master: ss.Master) -> set[str]:
    return {"manifest.json", *master.manifest.names, master.manifest.name("manifest")}


# The manifest


def test_a_manifest_of_before_there_were_changes_loads(tmp_path: Path):
    master = ss.build_master(_table(), tmp_path, key="id")
    new = json.loads((tmp_path / "manifest.json").read_bytes())
    old = {k: v for k, v in new.items() if k not in {"parent", "source", "changed", "checksum"}}
    version = {"semistream_master": old.pop("semistream_master")}
    del old["changes_checksum"]
    text = json.dumps(version | old | {"checksum": _json_checksum(old)})
    (tmp_path / "manifest.json").write_text(text)
    assert Manifest.load(tmp_path) == master.manifest


# Pages


def _expected_pages(codes: list[int], sizes: list[int], room: int) -> list[list[list[int]]]:
    """Cut rows into pages one by one: the same as the writer, the slow way."""
    values: dict[int, list[int]] = {}
    for row, code in enumerate(codes):
        values.setdefault(code, []).append(row)
    pages: list[list[list[int]]] = []
    current: list[int] = []
    for rows in values.values():
        if current and sum(sizes[r] for r in current + rows) > room:
            pages.append([current])
            current = []
        if sum(sizes[r] for r in rows) <= room:
            current = current + rows
            continue
        parts: list[list[int]] = [[]]
        for row in rows:
            if parts[-1] and sum(sizes[r] for r in parts[-1]) + sizes[row] > room:
                parts.append([])
            parts[-1].append(row)
        if len(parts) == 1:  # one row, larger than a page: others do not join it
            pages.append([parts[0]])
        else:
            pages.append(parts)
    return [*pages, [current]] if current else pages


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_pages_end_where_join_values_end(data: st.DataObject, tmp_path_factory) -> None:
    counts = data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 7, 40]), min_size=1, max_size=60))
    widths = st.sampled_from([0, 10, 100, 100, 300, 1000, 5000])
    codes = [code for code, count in enumerate(counts) for _ in range(count)]
    texts = ["x" * data.draw(widths) for _ in codes]
    table = pa.table({"id": codes, "text": texts})
    cut = data.draw(st.integers(1, 50))
    source = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=cut))
    folder = tmp_path_factory.mktemp("m")
    master = ss.build_master(source, folder, key="id", page_bytes=PAGE, memory="32KB")
    pages = _pages(master)
    assert [(r["__code"], r["text"]) for page in pages for r in page] == list(
        zip(codes, texts, strict=True)
    )
    held = [{row["__code"] for row in page} for page in pages]
    assert sum(map(len, held)) == len(counts)  # no join value in two pages
    assert [master.page_of(np.array(sorted(h))).tolist() for h in held] == [
        [page] * len(h) for page, h in enumerate(held)
    ]
    for page in range(master.pages):
        parts = master.parts(page)
        assert len(parts) == 1 or len(held[page]) == 1
        assert all(master.index.length[p] <= PAGE or master.index.rows[p] == 1 for p in parts)
        assert all(master.index.offset[p] % 4096 == 0 for p in parts)
    sizes = row_bytes(pa.record_batch({"id": codes, "text": texts})).tolist()
    room = PAGE - _overhead(master.page_schema)
    expected = _expected_pages(codes, sizes, room)
    assert [len(p) for p in pages] == [sum(map(len, parts)) for parts in expected]
    assert master.index.rows.tolist() == [len(part) for parts in expected for part in parts]


def _overhead(schema: pa.Schema) -> int:
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    return empty.serialize().size + 16 * sum(len(column.buffers()) for column in empty.columns)


def test_statistics_count_rows_values_duplicates_and_null_keys(tmp_path) -> None:
    ids = [5] * 300 + [None] * 7 + list(range(100, 600)) + [5] * 200 + [1, 1]
    table = pa.table({"id": ids, "pad": pa.array([b"x" * 50] * len(ids), pa.binary(50))})
    master = ss.build_master(table, tmp_path, key="id", page_bytes=PAGE, memory="32KB")
    s = master.statistics
    assert (s.rows, s.values, s.most_duplicates, s.null_keys) == (1002, 502, 500, 7)
    assert (master.rows, master.row_bytes, s.widest_row, s.bytes) == (1002, 59, 59, 59 * 1002)
    assert s.parts == len(master.index.code) > s.pages == master.pages == len(_pages(master))
    five = int(master.page_of(np.array([5]))[0])
    assert [row["__code"] for row in _pages(master)[five]] == [5] * 500
    assert len(master.parts(five)) == s.parts - s.pages + 1
    assert s.largest_part == 4096


def test_pages_larger_than_the_blocks_of_the_sort(tmp_path) -> None:
    table = _table(20_000)
    master = ss.build_master(table, tmp_path, key="id", page_bytes="256KB", memory="2MB")
    assert [row["__code"] for row in _rows(master)] == list(range(20_000))
    assert master.index.length.max() > 200_000
    assert master.index.length.max() <= 256 * 1024


# Sorting


@pytest.mark.parametrize("most_runs", [3, 128])
def test_the_sort_is_stable_over_runs_blocks_and_passes(most_runs, monkeypatch) -> None:
    monkeypatch.setattr(sort, "_MOST_RUNS", most_runs)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 9, 9_000)
    schema = pa.schema([("code", pa.int64()), ("row", pa.int64())])
    sorting = ExternalSort(schema, memory=64 << 10)
    for start in range(0, 9_000, 70):
        piece = codes[start : start + 70]
        rows = np.arange(start, start + len(piece))
        sorting.add(pa.record_batch([pa.array(piece), pa.array(rows)], schema=schema))
    merged = pa.Table.from_batches(list(sorting.merged()))
    sorting.close()
    order = np.argsort(codes, kind="stable")
    assert merged["row"].to_pylist() == order.tolist()
    assert merged["code"].to_pylist() == codes[order].tolist()


def test_rows_in_order_come_out_in_order_over_many_runs() -> None:
    schema = pa.schema([("code", pa.int64()), ("row", pa.int64())])
    sorting = ExternalSort(schema, memory=4096)
    for start in range(0, 1_000, 10):
        rows = np.arange(start, start + 10)
        sorting.add(pa.record_batch([pa.array(rows // 25), pa.array(rows)], schema=schema))
    merged = pa.Table.from_batches(list(sorting.merged()))
    sorting.close()
    assert merged["row"].to_pylist() == list(range(1_000))


def test_a_slice_of_a_batch_does_not_keep_the_batch() -> None:
    wide = pa.record_batch({f"c{i}": np.arange(1_000_000) for i in range(4)})
    nulls = pa.array([None, *range(999_999)], pa.int64())
    given = pa.record_batch({"id": wide.column(0), "c1": wide.column(1), "n": nulls})
    rows = Rows(pa.RecordBatchReader.from_batches(given.schema, [given]), None)
    pieces = [b for _, b in rows.encoded(Keys.of(given.schema, ["id"]), memory=32 << 20)]
    assert sum(piece.num_rows for piece in pieces) == 1_000_000
    assert len(pieces) > 10
    for piece in pieces:
        assert piece.get_total_buffer_size() <= piece.nbytes + 1024


def test_long_values_in_a_dictionary_are_decoded_piece_by_piece() -> None:
    texts = pa.array([letter * 10_000 for letter in "abc"])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000) % 3, pa.int8()), texts)
    given = pa.record_batch({"id": np.arange(20_000), "text": column})
    rows = Rows(pa.RecordBatchReader.from_batches(given.schema, [given]), None)
    pieces = [b for _, b in rows.encoded(Keys.of(given.schema, ["id"]), memory=32 << 20)]
    assert max(piece.nbytes for piece in pieces) <= 1 << 20
    assert pa.Table.from_batches(pieces)["text"].to_pylist() == column.to_pylist()


# Snapshots


def test_the_snapshot_is_the_same_for_the_same_rows_however_they_came(tmp_path) -> None:
    table = _table(3_000).append_column("n", pa.array([None if i % 3 else i for i in range(3_000)]))
    garbage = pa.array(np.arange(3_000), mask=np.arange(3_000) % 3 != 0)  # values under the nulls
    dirty = table.set_column(2, "n", garbage)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=700)
    small = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    sources = [
        table,
        dirty,
        small,
        table.sort_by("id"),
        dirty.sort_by("id"),
        tmp_path / "t.parquet",
    ]
    build = {
        ss.build_master(source, tmp_path / "m", key="id", page_bytes=PAGE, memory=memory).snapshot
        for source, memory in zip(
            sources, ["1GB", "64KB", "64KB", "64KB", "1GB", "1GB"], strict=True
        )
    }
    assert len(build) == 1


def test_the_snapshot_changes_with_a_value_an_order_a_name_or_the_key(tmp_path) -> None:
    base = pa.table({"a": [1, 2, 2], "b": [1, 2, 2], "c": ["x", "y", "z"]})
    changed = [
        (base, "a"),
        (base, "b"),
        (base, ["a", "b"]),
        (base.rename_columns(["a", "b", "d"]), "a"),
        (base.set_column(2, "c", pa.array(["x", "y", "w"])), "a"),
        (base.set_column(2, "c", pa.array(["x", "z", "y"])), "a"),
        (base.set_column(2, "c", pa.array(["x", "y", "z"], pa.large_string())), "a"),
        (base.slice(0, 2), "a"),
    ]
    ids = [ss.build_master(t, tmp_path, key=key).snapshot for t, key in changed]
    assert len(set(ids)) == len(ids)


# Sources


def test_parquet_file_folder_and_hive_partitions(tmp_path) -> None:
    for year, month in ((2020, "jan"), (2020, "feb"), (2021, "jan")):
        folder = tmp_path / "in" / f"year={year}" / f"month={month}"
        folder.mkdir(parents=True)
        rows = pa.table({"id": [year * 10 + len(month), year], "v": [month * 2, None]})
        pq.write_table(rows, folder / "part.parquet")
        (folder / "_SUCCESS").touch()
    master = ss.build_master(tmp_path / "in", tmp_path / "m", key=["id", "year", "month"])
    assert master.schema.names == ["id", "v", "year", "month"]
    found = {tuple(row[n] for n in master.schema.names) for row in _rows(master)}
    assert found == {
        (20203, "janjan", 2020, "jan"),
        (2020, None, 2020, "jan"),
        (20203, "febfeb", 2020, "feb"),
        (2020, None, 2020, "feb"),
        (20213, "janjan", 2021, "jan"),
        (2021, None, 2021, "jan"),
    }
    alone = tmp_path / "in" / "year=2021" / "month=jan" / "part.parquet"
    assert ss.build_master(str(alone), tmp_path / "n", key="id").schema.names == ["id", "v"]


def test_a_parquet_folder_whose_files_differ_in_columns(tmp_path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]}), folder / "1.parquet")
    pq.write_table(pa.table({"id": pa.array([2], pa.int32())}), folder / "2.parquet")
    rows = _rows(ss.build_master(folder, tmp_path / "m", key="id"))
    assert rows == [{"__code": 1, "v": "a"}, {"__code": 2, "v": None}]


def test_a_batch_and_an_empty_reader_are_sources_too(tmp_path) -> None:
    batch = pa.record_batch({"id": [2, 1]})
    assert [r["__code"] for r in _rows(ss.build_master(batch, tmp_path, key="id"))] == [1, 2]
    nothing = pa.RecordBatchReader.from_batches(batch.schema, [])
    assert ss.build_master(nothing, tmp_path, key="id").rows == 0


def test_progress_tells_rows_read_and_rows_written(tmp_path) -> None:
    told: list[Progress] = []
    table = _table(2_000)
    ss.build_master(table, tmp_path, key="id", memory="1MB", progress=told.append)
    assert [p.phase for p in told] == sorted(p.phase for p in told)
    for phase in ("read", "write"):
        rows = [p.rows for p in told if p.phase == phase]
        assert rows == sorted(rows)
        assert rows[-1] == 2_000
    assert {p.total for p in told} == {2_000}
    told.clear()
    ss.build_master(table.to_reader(), tmp_path, key="id", progress=told.append)
    assert {p.total for p in told if p.phase == "read"} == {None}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"page_bytes": 5000}, OptionError, "page_bytes=5000 is not a multiple .* take 8192"),
        ({"page_bytes": "1MB", "memory": "4MB"}, BudgetError, "pages of 1 MB; give at least 8 MB"),
        ({"key": []}, OptionError, "must name the column to join on"),
        ({"key": ["id", "id"]}, OptionError, "each once"),
        ({"key": "ib"}, SchemaError, "the master has no column 'ib'; it has: id, name"),
        *(
            ({"key": key}, OptionError, "is no list of column names")
            for key in (None, 7, [7], b"id")
        ),
        *(({"path": path}, OptionError, "give a master's folder") for path in (None, 7, b"m", "")),
        ({"path": "a\0b"}, OptionError, "cannot be the name of a folder"),
        ({"path": f"{__file__}/m"}, MasterError, "cannot be written: Not a directory"),
        ({"path": "x" * 300}, MasterError, "cannot be written: File name too long"),
        ({"path": "/proc/m"}, MasterError, "/proc/m cannot be written"),
        ({"page_bytes": "2TB", "memory": "99TB"}, OptionError, "at most 2147479552 bytes"),
        ({"page_bytes": "9" * 400}, OptionError, "page_bytes='9+…' is not a size"),
        ({"memory": 10**400}, OptionError, "memory='1000+…' is not a size"),
        ({"progress": 7}, OptionError, "progress=7 cannot be called"),
        ({"filter": "no"}, OptionError, "filter='no' is neither True nor False"),
        ({"columns": "id"}, OptionError, "columns='id' is one string"),
        ({"source": 7}, OptionError, "source is a int; give a pyarrow Table"),
        ({"source": "/no/such"}, OptionError, "'/no/such' does not exist"),
        ({"source": __file__}, OptionError, "is not readable as Parquet"),
        (
            {"source": pa.table({"id": [1], "__code": [1]})},
            SchemaError,
            "'__code' of its own; rename",
        ),
        (
            {"source": pa.table([pa.array([1])] * 2, names=["id", "id"])},
            SchemaError,
            "different names",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_and_leaves_nothing(
    arguments, error, message, tmp_path
) -> None:
    defaults = {"source": _table(10), "key": "id", "path": tmp_path / "new"}
    with pytest.raises(error, match=message):
        ss.build_master(**(defaults | arguments))
    assert _files(tmp_path) == set()


@pytest.mark.parametrize("kind", [str, Path])
def test_a_url_is_no_folder_and_its_secrets_are_not_told(kind, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = kind("s3://KEY:SECRET@bucket/products")
    for call in (
        lambda: ss.build_master(_table(10), url, key="id"),
        lambda: ss.open_master(url),
        lambda: ss.sync_master(url, deletes=[1]),
        lambda: ss.plan(url, memory="1MB"),
        lambda: ss.master.list_snapshots(url),
        lambda: ss.master.clean_master(url),
    ):
        with pytest.raises(OptionError, match="path='s3://bucket/products' is a URL") as told:
            call()
        assert "SECRET" not in str(told.value)
    assert _files(tmp_path) == set()
    ss.build_master(_table(10), tmp_path / "s3:" / "x", key="id")  # an absolute path is none


def test_sizes_may_be_integers_of_numpy(tmp_path) -> None:
    sizes = {"page_bytes": np.int64(8192), "memory": np.uint32(1 << 20)}
    master = ss.build_master(_table(10), tmp_path, key="id", filter=np.bool_(False), **sizes)
    assert (master.manifest.page_bytes, master.manifest.filter_words) == (8192, 0)


@pytest.mark.parametrize("kind", ["pages", "lines", "codes"])
def test_a_part_that_is_not_all_there_is_found(kind, tmp_path) -> None:
    table = pa.table({"id": np.arange(20_000)})
    target = Target.of(tmp_path, table.schema, "id", PAGE)
    with target.building():
        staging = Staging(files.staging_folder(tmp_path), target, 64 << 20, filter=True)
        part = write_part(Rows.of(table), staging)
        path = staging.file(part.name, kind)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 37 // 2 * 37])
        with pytest.raises(MasterError, match="not all of this part came to be on disk"):
            join_parts([part], staging, lambda _: None)


def test_a_folder_without_parquet_files_is_refused(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(OptionError, match="holds no Parquet file"):
        ss.build_master(tmp_path / "in", tmp_path / "m", key="id")


def test_foreign_files_are_not_touched(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MasterError, match="holds other files and no master"):
        ss.build_master(_table(10), tmp_path, key="id")
    with pytest.raises(MasterError, match=r"notes\.txt is a file"):
        ss.build_master(_table(10), tmp_path / "notes.txt", key="id")
    assert _files(tmp_path) == {"notes.txt"}
    (tmp_path / "notes.txt").unlink()
    ss.build_master(_table(10), tmp_path, key="id")
    (tmp_path / "notes.pages").write_text("mine, beside a master")
    master = ss.build_master(_table(20), tmp_path, key="id")
    assert _files(tmp_path) == {"notes.pages", *_own_files(master)}


# Failing and dying


def _failing(table: pa.Table) -> pa.RecordBatchReader:
    def batches():
        yield from table.to_batches(max_chunksize=100)
        msg = "the source broke"
        raise RuntimeError(msg)

    return pa.RecordBatchReader.from_batches(table.schema, batches())


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_source_that_fails_leaves_nothing(unnamed, tmp_path, monkeypatch) -> None:
    if not unnamed:
        _forbid_unnamed_files(monkeypatch)
    with pytest.raises(RuntimeError, match="the source broke"):
        ss.build_master(_failing(_table()), tmp_path / "a" / "b", key="id", memory="1MB")
    assert _files(tmp_path) == set()
    (tmp_path / "mine").mkdir()
    with pytest.raises(RuntimeError, match="the source broke"):
        ss.build_master(_failing(_table()), tmp_path / "mine", key="id")
    assert _files(tmp_path) == {"mine"}  # it was there before
    master = ss.build_master(_table(), tmp_path / "mine", key="id")
    before = _files(tmp_path / "mine")
    with pytest.raises(RuntimeError, match="the source broke"):
        ss.build_master(_failing(_table(700)), tmp_path / "mine", key="id")
    assert _files(tmp_path / "mine") == before == _own_files(master)
    assert ss.open_master(tmp_path / "mine").verify() == master.pages


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_failure_while_writing_leaves_the_old_master(unnamed, tmp_path, monkeypatch) -> None:
    if not unnamed:
        _forbid_unnamed_files(monkeypatch)
    master = ss.build_master(_table(), tmp_path, key="id")

    def refuse(progress: Progress) -> None:
        if progress.phase == "write":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ss.build_master(_table(900), tmp_path, key="id", progress=refuse)
    assert _files(tmp_path) == _own_files(master)
    assert ss.open_master(tmp_path).rows == 500


def test_a_failure_while_publishing_leaves_nothing_new(tmp_path, monkeypatch) -> None:
    master = ss.build_master(_table(), tmp_path / "old", key="id")

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync_folder", full)  # the data files have their names by now
    for name in ("old", "fresh"):
        with pytest.raises(OSError, match="No space left"):
            ss.build_master(_table(900), tmp_path / name, key="id")
    assert _files(tmp_path) == {"old"}
    assert _files(tmp_path / "old") == _own_files(master)
    assert ss.open_master(tmp_path / "old").verify() == master.pages


def test_what_fails_after_the_manifest_took_over_removes_nothing(tmp_path, monkeypatch) -> None:
    """Its name may not be on disk: after a power cut the old snapshot would be the master."""
    old = ss.build_master(_table(), tmp_path, key="id")
    real, done = files.sync_folder, []

    def fails_last(folder: Path) -> None:
        done.append(folder)
        if len(done) == 2:
            raise OSError(5, "Input/output error")
        real(folder)

    monkeypatch.setattr(files, "sync_folder", fails_last)
    with pytest.raises(OSError, match="Input/output error"):
        ss.build_master(_table(700), tmp_path, key="id")
    assert _own_files(old) <= _files(tmp_path)
    assert ss.open_master(tmp_path).rows == 700
    monkeypatch.undo()
    new = ss.build_master(_table(800), tmp_path, key="id")
    assert _files(tmp_path) == _own_files(new)


def test_old_snapshots_stay_until_the_manifest_is_on_disk(tmp_path, monkeypatch, caplog) -> None:
    old = ss.build_master(_table(), tmp_path, key="id")

    def fails(folder: Path) -> None:
        raise OSError(5, "Input/output error", str(folder))

    monkeypatch.setattr("semistream.master.snapshots.removal.sync_folder", fails)
    ss.build_master(_table(700), tmp_path, key="id")
    assert _own_files(old) <= _files(tmp_path)
    assert "cannot be removed" in caplog.text


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_names_the_place(call, unnamed, tmp_path, monkeypatch) -> None:
    if not unnamed:
        _forbid_unnamed_files(monkeypatch)
    ss.build_master(_table(), tmp_path, key="id")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "fsync":
        monkeypatch.setattr(files.os, "fsync", full)
    else:
        monkeypatch.setattr(files._File, "write", _fails_in_writing(full))
    for build in (
        lambda: ss.build_master(_table(900), tmp_path, key="id"),
        lambda: ss.build_master(_table(9_000), tmp_path, key="id", memory="100KB", page_bytes=PAGE),
        lambda: ss.sync_master(tmp_path, deletes=[1]),
    ):
        with pytest.raises(MasterError, match=f"{tmp_path}.* cannot be written: No space") as told:
            build()
        assert told.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert ss.open_master(tmp_path).rows == 500


def _fails_in_writing(full):
    def write(self, _):
        with files.writing(self._path):
            full()

    return write


def test_a_failure_leaves_a_master_of_another_version_too(tmp_path) -> None:
    master = ss.build_master(_table(), tmp_path, key="id")
    manifest = tmp_path / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"semistream_master": 2', '"semistream_master": 3'))
    with pytest.raises(RuntimeError, match="the source broke"):
        ss.build_master(_failing(_table(700)), tmp_path, key="id")
    assert _files(tmp_path) == _own_files(master)
    new = ss.build_master(_table(700), tmp_path, key="id")
    assert _files(tmp_path) == _own_files(new)


def _forbid_unnamed_files(monkeypatch) -> None:
    real = os.open

    def without(path, flags, *args, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "not supported")
        return real(path, flags, *args, **options)

    monkeypatch.setattr(files.os, "open", without)


def test_a_file_system_without_unnamed_files_serves_as_well(tmp_path, monkeypatch) -> None:
    _forbid_unnamed_files(monkeypatch)
    ss.build_master(_table(100), tmp_path, key="id")
    master = ss.build_master(_table(), tmp_path, key="id", memory="1MB")
    assert _files(tmp_path) == _own_files(master)
    assert [row["__code"] for row in _rows(master)] == list(range(500))


_DYING = """
import os, signal, sys
import pyarrow as pa
import semistream as ss
from pathlib import Path

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def build(path, when):
    calls, replace = iter(range(100)), Path.replace

    def after(self, target):
        result = replace(self, target)
        return die() if next(calls) == when - 10 else result

    def before(self, target):
        return die() if next(calls) == when else replace(self, target)

    def source():
        for i in range(200):
            if when == -1 and i == 150:
                die()
            yield pa.record_batch({"id": range(i * 1000, i * 1000 + 1000)})

    Path.replace = after if when >= 10 else before
    rows = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), source())
    ss.build_master(rows, path, key="id", memory="2MB")
    os._exit(0)

for path in sys.argv[1:]:  # in the folder of its moment
    child = os.fork()
    if not child:
        build(path, int(Path(path).parent.name))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_build_that_is_killed_leaves_a_whole_master_and_no_lasting_rubbish(tmp_path) -> None:
    """Killed in the source, before the first, second and last renaming, and after the last."""
    moments = [-1, 0, 1, 4, 14]
    places = {when: [tmp_path / str(when) / name for name in ("old", "fresh")] for when in moments}
    olds = {when: ss.build_master(_table(), places[when][0], key="id") for when in moments}
    folders = [str(folder) for pair in places.values() for folder in pair]
    command = [sys.executable, "-c", _DYING, *folders]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    assert done.stdout.split() == [str(-signal.SIGKILL)] * len(folders), done.stderr
    for when in moments:
        _is_whole(when, olds[when], *places[when])


def _is_whole(when: int, old: ss.Master, old_folder: Path, fresh: Path) -> None:
    found = ss.open_master(old_folder)
    assert found.rows == (200_000 if when == 14 else 500)
    assert found.verify() == found.pages
    assert old.verify() == old.pages  # opened before: it reads on in any case
    if when == 14:
        assert ss.open_master(fresh).verify() > 0
    for folder in (old_folder, fresh):
        assert when != -1 or _files(folder) == (
            _own_files(found) if folder.name == "old" else set()
        )
        master = ss.build_master(_table(50), folder, key="id")
        assert _files(folder) == _own_files(master)
        assert [row["__code"] for row in _rows(master)] == list(range(50))


def test_a_second_build_is_refused_and_does_not_disturb_the_first(tmp_path) -> None:
    table = _table()

    def batches():
        for i, batch in enumerate(table.to_batches(max_chunksize=100)):
            if i == 2:
                with pytest.raises(MasterError, match="another build is writing this master"):
                    ss.build_master(table, tmp_path / "m", key="id")
            yield batch

    source = pa.RecordBatchReader.from_batches(table.schema, batches())
    assert ss.build_master(source, tmp_path / "m", key="id").rows == 500
    assert ss.build_master(table.slice(9), tmp_path / "m", key="id").rows == 491


def test_a_build_on_another_host_is_seen_by_a_file_that_is_locked(tmp_path) -> None:
    folder = tmp_path / "m"
    ss.build_master(_table(10), folder, key="id")
    with (folder / ".lock").open("r+b") as lock:  # network file systems lock no folders
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MasterError, match="another build is writing this master"):
            ss.build_master(_table(20), folder, key="id")
    assert ss.build_master(_table(20), folder, key="id").rows == 20


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "folder", "pipe"])
@pytest.mark.parametrize("lock", [".lock", ".pins/lock"])
def test_a_lock_that_someone_else_put_there_is_not_taken(kind, lock, tmp_path) -> None:
    secret, folder = tmp_path / "key", tmp_path / "m"
    secret.write_text("PRIVATE")
    secret.chmod(0o600)
    path = folder / lock
    path.parent.mkdir(parents=True)
    put = {
        "link": lambda: path.symlink_to(secret),
        "dangling": lambda: path.symlink_to(tmp_path / "new"),
        "hard link": lambda: path.hardlink_to(secret),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }
    ss.build_master(_table(10), folder, key="id")
    path.unlink(missing_ok=True)
    put[kind]()
    take = {
        ".lock": lambda: ss.build_master(_table(10), folder, key="id"),
        ".pins/lock": lambda: pins.pin(folder, "query", "1"),
    }
    with pytest.raises(MasterError, match=f"{path} is no lock file of this package"):
        take[lock]()
    assert secret.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "new").exists()


def test_no_lock_is_left_where_nothing_was_built(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="the source broke"):
        ss.build_master(_failing(_table()), tmp_path, key="id")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to_is_cleaned_in_vain(tmp_path, monkeypatch) -> None:
    master = ss.build_master(_table(10), tmp_path, key="id")
    (tmp_path / ".lock").unlink()
    real = os.open

    def read_only(path, flags, *args, **options):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *args, **options)

    monkeypatch.setattr(files.os, "open", read_only)
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    assert ss.master.clean_master(tmp_path) == []
    assert _files(tmp_path) == _own_files(master)


# Replacing


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_an_open_master_reads_on_while_it_is_replaced(read: str, tmp_path) -> None:
    ss.build_master(_table(), tmp_path, key="id", page_bytes=PAGE)
    old = ss.open_master(tmp_path, read=read)
    rows, reader = _rows(old), old.reader()
    first = reader.load(0, 1)[0].to_pylist()
    new = ss.build_master(_table(5), tmp_path, key="id", filter=False)
    assert _files(tmp_path) == _own_files(new)
    assert reader.load(0, 1)[0].to_pylist() == first
    assert _rows(old) == rows  # by a reader that was made afterwards
    assert old.load_filter(old.manifest.filter_words).may_contain(np.arange(500)).all()
    assert old.verify() == old.pages
    assert ss.open_master(tmp_path, read=read).rows == 5


def test_opening_while_a_build_replaces_the_master(tmp_path, monkeypatch) -> None:
    ss.build_master(_table(), tmp_path, key="id")
    stale = Manifest.load(tmp_path)
    ss.build_master(_table(5), tmp_path, key="id")
    answers = iter([stale, Manifest.load(tmp_path)])
    monkeypatch.setattr(store.Manifest, "load", lambda _: next(answers))
    assert ss.open_master(tmp_path).rows == 5


def test_rebuilding_the_same_rows_keeps_the_snapshot_but_no_file(tmp_path) -> None:
    one = ss.build_master(_table(), tmp_path, key="id")
    before = _files(tmp_path)
    two = ss.build_master(_table(), tmp_path, key="id", filter=False)
    assert one.snapshot == two.snapshot
    assert _files(tmp_path) & before == {"manifest.json"}
    assert (one.manifest.filter_words > 0, two.manifest.filter_words) == (True, 0)
    assert page_schema(two.schema, two.keys) == two.page_schema


def test_pages_of_a_size_that_the_disk_decides(tmp_path, monkeypatch):
    table = pa.table({"id": range(20_000), "pad": ["p" * 60] * 20_000})
    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes="auto")
    size = master.manifest.page_bytes
    assert size % 4096 == 0
    assert 8 << 10 <= size <= 128 << 10
    assert [p.name for p in tmp_path.iterdir()] == ["m"]  # what was measured is gone
    rates = {128 << 10: 1e9 / (128 << 10), 4096: 5e4}
    monkeypatch.setattr(page_size, "_per_second", lambda _, size: rates[size])
    assert page_size.best_page_bytes(tmp_path / "not" / "there") == 20480
    monkeypatch.setattr(page_size, "_per_second", lambda *_: None)
    assert page_size.best_page_bytes(tmp_path) == page_size.DEFAULT
