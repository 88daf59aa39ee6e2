"""Masters that change under a running query: a micro-batch sees one snapshot, whatever happens."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

import semistream as ss
from semistream.errors import MasterError, SchemaError
from semistream.master import list_snapshots
from semistream.master.files.drafts import Draft
from semistream.master.files.format import MANIFEST, _json_checksum
from semistream.master.snapshots import pins
from semistream.spark.cluster.context_state import state_of
from semistream.spark.lookup import copies as localize
from semistream.spark.lookup import snapshot, worker
from semistream.spark.lookup.copies import local_copy
from semistream.spark.lookup.job import Copies, Job
from semistream.spark.lookup.process_cache import PROCESS
from semistream.spark.metrics import listener
from support import wait_for
from support.matrix import ALL
from support.servers.connectors import require
from support.updates import Updates, put

pytestmark = pytest.mark.xdist_group("spark")

BATCHES, UPDATES_A_BATCH = (34, 3) if ALL else (3, 2)
ROWS = 6_000
SCHEMA = "sale long, batch long, key long"


def stream_of(spark, folder):
    """Give a stream of the files, one a micro-batch, whose tasks start at different times."""

    def slowly(batches):  # not at the top, for workers do not find this module
        time.sleep(0.2)
        yield from batches

    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return files.repartition(6).mapInArrow(slowly, SCHEMA)


def started(df, tmp_path, sink="parquet"):
    written = df.writeStream.format(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    return written.start(str(tmp_path / "out"))


def committed(tmp_path, batch):
    return (tmp_path / "checkpoint" / "commits" / str(batch)).exists()


# -- a running query ------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", ["delta" if ALL else "parquet"])
def test_every_row_is_of_the_snapshot_of_its_batch(spark, tmp_path, sink):
    """Two masters in a chain are updated again and again in the middle of batches.

    Router and join tasks must see the same snapshot of the first, and each master has its pins.
    """
    if sink == "delta":
        require("delta")
    first, second = Updates(tmp_path / "first"), Updates(tmp_path / "second", "other", seed=2)
    put(tmp_path / "stream", 0, ROWS)
    routed = {"partition": "key", "transfer": "rows", "read": "direct"}
    df = stream_of(spark, tmp_path / "stream")
    df = ss.enrich(df, first.path, on="key", how="left", memory="2MB", tasks=2, **routed)
    df = ss.enrich(df, second.path, on="key", how="left", memory="2MB", transfer="keys")
    query = started(df, tmp_path, sink)
    try:
        for batch in range(BATCHES):
            for _ in range(UPDATES_A_BATCH):
                for master in (first, second):
                    master.update()
                time.sleep(0.2)
            wait_for(f"batch {batch}", lambda n=batch: committed(tmp_path, n) or not query.isActive)
            assert query.exception() is None
            put(tmp_path / "stream", batch + 1, ROWS)
        query.processAllAvailable()
    finally:
        query.stop()
    found = spark.read.format(sink).load(str(tmp_path / "out")).toArrow()
    assert sorted(found["sale"].to_pylist()) == list(range((BATCHES + 1) * ROWS))
    for master in (first, second):
        master.note_pins()
        assert master.wrong(found) == 0
        assert len(set(master.pins.values())) > BATCHES // 2
        master.update()
        assert len(list_snapshots(master.path)) <= 1 + pins.KEPT + 1


# -- once more ------------------------------------------------------------------------------------


def test_a_batch_that_is_repeated_in_foreach_batch_sees_the_old_snapshot(spark, tmp_path):
    master = Updates(tmp_path / "master")
    for batch in range(3):
        put(tmp_path / "stream", batch, 500)
    fails = True

    def write(df, number):
        out = ss.enrich(df, master.path, on="key", how="left", memory="2MB", check=False)
        out.write.mode("overwrite").parquet(str(tmp_path / f"out/{number}"))
        master.update()
        if number == 1 and fails:
            raise RuntimeError("after it was written")

    def run():
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        df = files.parquet(str(tmp_path / "stream"))
        written = df.writeStream.foreachBatch(write).trigger(availableNow=True)
        written.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    with pytest.raises(Exception, match="after it was written"):
        run()
    before = pq.read_table(tmp_path / "out/1").sort_by("sale")
    fails = False
    run()
    assert pq.read_table(tmp_path / "out/1").sort_by("sale") == before
    master.note_pins()
    found = pa.concat_tables(pq.read_table(tmp_path / f"out/{n}") for n in range(3))
    assert master.wrong(found) == 0
    assert len(set(master.pins.values())) == 3


def test_keys_that_come_to_have_several_rows_are_told(spark, tmp_path):
    master = Updates(tmp_path / "master")
    put(tmp_path / "stream", 0, 100)
    df = ss.enrich(
        spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "stream")),
        master.path,
        on="key",
        memory="2MB",
        transfer="keys",
        check=False,
    )
    ss.sync_master(master.path, upserts=pa.table({"key": [5, 5], "number": [1, 2]}))
    query = started(df, tmp_path)
    with pytest.raises(Exception, match="up to 2 rows a key"):
        query.processAllAvailable()


# -- copies, and folders that may not be written --------------------------------------------------


def test_a_copy_has_the_snapshot_of_the_batch(tmp_path):
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    source = master.path.as_uri()
    before = snapshot.pin_batch(source, ("query", "1"))
    master.update()
    for files in (before.files, snapshot.pin_batch(source, ("query", "2")).files):
        for address in (source, str(master.path)):
            copy = ss.open_master(local_copy(address, copies, files), snapshot=files)
            assert copy.manifest.files == files
    assert before.files in {p.name for p in (tmp_path / "copies/masters").iterdir()}
    assert copy.manifest.parent == before.files
    assert (copy.path / f"{before.files}.manifest").exists()
    with pytest.raises(MasterError, match="no snapshot 0000"):
        local_copy(source, copies, "0000")


def fetched_anew(source, copies):
    """Fetch a copy as a process does that has none in use; give its rows, and all copies."""
    PROCESS.copies.clear()
    while PROCESS.copy_locks:
        os.close(PROCESS.copy_locks.popitem()[1])
    copy = ss.open_master(local_copy(source, copies))
    return numbers(copy), {path.name for path in copy.path.parent.iterdir()}


def numbers(master):
    pages = (master.reader().load(page, 1)[0] for page in range(len(master.index.code)))
    return [page["number"].to_pylist() for page in pages]


@pytest.mark.parametrize("kind", ["pages", "index", "filter", "manifest.json", "changes"])
@pytest.mark.parametrize("damage", ["empty", "short", "gone"])
def test_a_copy_that_is_not_whole_is_made_anew(kind, damage, tmp_path):
    """As after a power cut, before which its names were on disk and not all of its bytes."""
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    master.update()
    wanted, _ = fetched_anew(str(master.path), copies)
    copy = Path(local_copy(str(master.path), copies))
    path = next(copy.glob(f"{copy.name}.{kind}"), copy / kind)
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(content[: len(content) // 2] if damage == "short" else b"")
    assert fetched_anew(str(master.path), copies)[0] == wanted
    assert ss.open_master(copy).verify()


def test_a_damaged_copy_in_use_is_made_anew_and_in_use_again(tmp_path):
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    copy = Path(local_copy(str(master.path), copies))
    next(copy.glob("*.pages")).write_bytes(b"")
    PROCESS.copies.clear()
    assert ss.open_master(local_copy(str(master.path), copies)).verify()
    assert os.path.samestat(os.fstat(PROCESS.copy_locks[copy]), copy.stat())


def test_files_that_are_not_the_manifests_are_not_copied(tmp_path):
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    pages = next(master.path.glob("*.pages"))
    pages.write_bytes(pages.read_bytes()[:-1])
    with pytest.raises(MasterError, match="not those that its manifest describes"):
        fetched_anew(str(master.path), copies)
    assert not list((tmp_path / "copies" / "masters").iterdir())


def test_a_manifest_that_leads_elsewhere_is_not_copied(tmp_path):
    """Who may write a bucket must not remove or write folders of who copies from it."""
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    manifest = master.path / MANIFEST
    said = json.loads(manifest.read_text()) | {"files": str(tmp_path / "home")}
    rest = {name: said[name] for name in said if name not in {"semistream_master", "checksum"}}
    manifest.write_text(json.dumps(said | {"checksum": _json_checksum(rest)}))
    with pytest.raises(MasterError, match=f"{manifest}: the manifest says what cannot be"):
        fetched_anew(str(master.path), copies)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_a_copy_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    synced, rename = [], Path.rename
    monkeypatch.setattr(localize, "sync_folder", synced.append)

    def renamed(path, target):
        assert {file.name for file in path.iterdir()} | {path.name} == {p.name for p in synced}
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    copy = Path(local_copy(str(master.path), copies))
    assert synced[-1] == copy.parent


@pytest.mark.parametrize("content", [b"", b"\0" * 16, b"\xff" * 16, b"3bc6e7925d7e35"])
def test_a_damaged_note_of_a_query_does_not_end_it(content, tmp_path, monkeypatch, caplog):
    master = ss.open_master(Updates(tmp_path / "master").path)
    job = replace(job_on(master.path, ""), shape="0123456789abcdef")
    other = replace(job, shape="fedcba9876543210")
    worker._check_shape(job, master, "query")
    [note] = master.path.glob(".query-*")
    note.write_bytes(content)
    PROCESS.known_shapes.clear()
    worker._check_shape(job, master, "query")
    assert f"{note} is damaged" in caplog.text
    assert note.read_text() == job.shape
    with pytest.raises(SchemaError, match="rebuilt with other columns"):
        worker._check_shape(other, master, "query")


def test_the_note_of_a_query_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    master = ss.open_master(Updates(tmp_path / "master").path)
    done = []
    for name in ("sync", "publish_first"):
        real = getattr(Draft, name)
        monkeypatch.setattr(
            Draft, name, lambda *args, n=name, r=real: (done.append(n), r(*args))[1]
        )
    monkeypatch.setattr(worker, "sync_folder", done.append)
    worker._check_shape(replace(job_on(master.path, ""), shape="0" * 16), master, "another query")
    assert done == ["sync", "publish_first", master.path]


def crash(*_, **__):
    raise CrashError


class CrashError(RuntimeError):
    """As if a process was killed."""


def test_a_copy_is_fetched_again_wherever_a_process_was_killed(tmp_path, monkeypatch):
    master, copies = Updates(tmp_path / "master"), Copies(str(tmp_path / "copies"), 1 << 30)
    source, folder = master.path.as_uri(), tmp_path / "copies/masters"
    wanted, names = fetched_anew(source, copies)
    for kind in (MANIFEST, "*.pages"):
        for path in folder.glob(f"*/{kind}"):
            path.unlink()
        (folder / ".draft-0000").mkdir()
        assert fetched_anew(source, copies) == (wanted, names)
    master.update()
    size = sum(file.stat().st_size for file in folder.glob("*/*"))
    full = Copies(copies.folder, size * 3 // 2)
    with monkeypatch.context() as patched:
        tools = SimpleNamespace(rmtree=crash, copyfileobj=shutil.copyfileobj)
        patched.setattr(localize, "shutil", tools)
        with pytest.raises(CrashError):
            fetched_anew(source, full)
    now = ss.open_master(master.path)
    assert fetched_anew(source, full) == (numbers(now), {now.manifest.files})


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOTSUP, errno.ENOLCK])
def test_a_folder_where_no_pin_can_be_made_is_told_once(tmp_path, monkeypatch, caplog, code):
    master = Updates(tmp_path / "master")
    assert snapshot.may_pin(str(master.path))

    def refuse(*_):
        raise OSError(code, os.strerror(code), str(master.path / ".pins"))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not snapshot.may_pin(str(master.path))
    with caplog.at_level(logging.WARNING):
        for batch in "12":
            assert snapshot.pin_batch(str(master.path), ("query", batch)) is None
    assert [m for m in caplog.messages if os.strerror(code) in m] == caplog.messages[:1]
    assert snapshot.pin_batch("s3://bucket/master", ("query", "1")) is None


def test_messages_do_not_show_the_secret_of_an_object_store(tmp_path, caplog):
    uri = "s3://KEY:SECRET@bucket/master"
    with caplog.at_level(logging.WARNING):
        assert snapshot.pin_batch(uri, ("query", "1")) is None
    assert "s3://bucket/master: snapshots cannot be pinned there" in caplog.text
    assert "SECRET" not in caplog.text
    with pytest.raises(MasterError, match=r"^s3://bucket/master: there is no master table"):
        localize._manifest(LocalFileSystem(), str(tmp_path), uri, "")


def test_a_stream_that_has_nothing_to_do_keeps_the_snapshot_that_was_chosen_for_it(
    spark, tmp_path, monkeypatch
):
    master = Updates(tmp_path / "master")
    chosen = ss.open_master(master.path).manifest.files
    state = state_of(spark)
    job = snapshot.choose_snapshot(spark, job_on(master.path, chosen), streaming=True)
    [pin] = pins.all_pins(master.path)
    monkeypatch.setattr(snapshot, "_RENEWAL", 0)
    for _ in range(3):
        os.utime(pin.path, (time.time() - 2 * 86_400,) * 2)
        listener._Listener(state).onQueryIdle(None)
        master.update()
    assert snapshot.snapshot_files(job) == chosen
    assert chosen in {each.manifest.files for each in list_snapshots(master.path)}


def job_on(path, files):
    schema = pa.schema([])
    return Job(name="stream", path=str(path), stream=schema, memory=1 << 20, tasks=1, files=files)


def test_a_master_is_opened_though_other_threads_push_it_out_meanwhile(tmp_path, monkeypatch):
    master = Updates(tmp_path / "master")
    job = replace(job_on(master.path, *master.states), shape="shape")

    def others(*_):
        PROCESS.masters[job.path, job.read].clear()
        return "shape"

    monkeypatch.setattr(worker, "shape_of", others)
    for _ in range(2):
        assert worker.open_files(job).manifest.files == job.files


def test_a_pin_whose_snapshot_is_gone_is_an_error_with_a_way_out(tmp_path):
    master = Updates(tmp_path / "master")
    pin = pins.pin(master.path, "query", "1")
    master.update()
    for file in master.path.glob(f"{pin.files}.*"):
        file.unlink()
    with pytest.raises(MasterError, match="the current one"):
        ss.open_master(master.path, snapshot=pin.files)
