"""Several snapshots in a folder: opened by name, pinned by micro-batches, removed when free."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import semistream as ss
from semistream.cli.commands import app
from semistream.errors import MasterError, MasterNotFoundError, OptionError
from semistream.master import clean_master, list_snapshots
from semistream.master.files import drafts as files
from semistream.master.files import locks
from semistream.master.snapshots import pins, snapshots
from semistream.master.snapshots.removal import remove_unneeded
from support.matrix import ALL

DAY = 86_400.0
QUERY = "0f0e8a52-0000-4000-8000-00000000000"


def table(price, rows=300):
    return pa.table({"id": np.arange(rows), "price": np.full(rows, price)})


def built(path, price, rows=300):
    return ss.build_master(table(price, rows), path, key="id", page_bytes="4KB")


def prices(master):
    parts = range(len(master.index.code))
    return {p for i in parts for p in master.reader().load(i, 1)[0]["price"].to_pylist()}


def there(path):
    return [snapshot.manifest.files for snapshot in list_snapshots(path)]


# -- which there are ------------------------------------------------------------------------------


def test_a_pinned_snapshot_stays_and_is_opened_by_its_id(tmp_path):
    old = built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "4")
    new = built(tmp_path, 2)
    assert there(tmp_path) == [new.manifest.files, old.manifest.files]
    for name in (old.snapshot, old.manifest.files, old.snapshot[:8]):
        chosen = ss.open_master(tmp_path, "mapped", snapshot=name)
        assert (prices(chosen), chosen.chosen) == ({1}, True)
    assert prices(ss.open_master(tmp_path, snapshot=new.snapshot)) == {2}
    assert prices(ss.open_master(tmp_path)) == {2}


def test_a_pinned_snapshot_of_another_version_stays(tmp_path):
    """Whoever pinned it can read it, if we cannot."""
    old = built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "4")
    manifest = tmp_path / old.manifest.name("manifest")
    kept = manifest.read_text()
    manifest.write_text(kept.replace('"semistream_master": 2', '"semistream_master": 99'))
    new = built(tmp_path, 2)
    assert there(tmp_path) == [new.manifest.files]
    manifest.write_text(kept)
    assert prices(ss.open_master(tmp_path, snapshot=old.manifest.files)) == {1}
    manifest.write_text("damaged")
    remove_unneeded(tmp_path, keep=0.0, now=time.time() + 1)  # it is pinned no more
    assert not [file.name for file in tmp_path.iterdir() if file.stem == old.manifest.files]


@pytest.mark.parametrize("name", ["", "abc", "0" * 32, f"{'0' * 32}-{'0' * 8}"])
def test_a_snapshot_that_is_not_there_is_told_with_those_that_are(name, tmp_path):
    master = built(tmp_path, 1)
    with pytest.raises(MasterError, match=f"{master.manifest.files} .the current one"):
        ss.open_master(tmp_path, snapshot=name)


def test_the_beginning_of_several_ids_is_not_taken_for_the_current_one(tmp_path, monkeypatch):
    ids = iter([f"ab{'0' * 30}", f"ab{'1' * 30}"])
    monkeypatch.setattr("semistream.master.build.target.Target._snapshot", lambda *_: next(ids))
    old = built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "4")
    new = built(tmp_path, 2)
    with pytest.raises(MasterError, match=f"not the only one .* {old.manifest.files}"):
        ss.open_master(tmp_path, snapshot="ab")
    for name in ("ab1", new.snapshot, new.manifest.files):
        assert prices(ss.open_master(tmp_path, snapshot=name)) == {2}


def test_snapshots_are_listed_beside_a_build(tmp_path, monkeypatch):
    built(tmp_path, 1)
    whole, done = snapshots.whole_snapshots, []

    def replaced(folder, current):
        if not done:
            done.append(built(tmp_path, 2).manifest.files)
        return whole(folder, current)

    monkeypatch.setattr(snapshots, "whole_snapshots", replaced)
    assert [(s.manifest.files, s.current) for s in list_snapshots(tmp_path)] == [(done[0], True)]


def test_without_pins_a_build_leaves_one_snapshot(tmp_path):
    built(tmp_path, 1)
    new = built(tmp_path, 2)
    assert there(tmp_path) == [new.manifest.files]
    assert {p.suffix for p in tmp_path.glob("[!.]*")} == {
        ".json",
        ".pages",
        ".index",
        ".filter",
        ".manifest",
    }


# -- pins -----------------------------------------------------------------------------------------


def test_a_pin_never_changes(tmp_path):
    master = built(tmp_path, 1)
    first = pins.pin(tmp_path, QUERY, "7")
    built(tmp_path, 2)
    assert pins.pin(tmp_path, QUERY, "7") == first
    assert first == pins.Pin(master.manifest.files)
    told = json.loads((tmp_path / ".pins" / QUERY / "7").read_text())
    assert told == {"files": master.manifest.files, "sequence": 1}


def test_a_query_keeps_its_newest_pins_alone(tmp_path):
    built(tmp_path, 1)
    for batch in range(20):
        pins.pin(tmp_path, QUERY, str(batch))
    assert {p.batch for p in pins.all_pins(tmp_path)} == {"17", "18", "19"}
    pins.pin(tmp_path, QUERY, "5")  # taken back by hand: it counts by its sequence
    assert {p.batch for p in pins.all_pins(tmp_path)} == {"5", "18", "19"}


@pytest.mark.parametrize("hours", [1, -1, 24 * 365])
def test_pins_do_not_depend_on_the_clock(hours, tmp_path):
    """They were made while the clock was wrong by so much, or it has been wrong since."""
    built(tmp_path, 1)
    for batch in ("7", "8", "9"):
        pins.pin(tmp_path, QUERY, batch)
        os.utime(tmp_path / ".pins" / QUERY / batch, (time.time() + hours * 3600,) * 2)
    first = pins.pin(tmp_path, QUERY, "10")
    built(tmp_path, 2)
    assert pins.pin(tmp_path, QUERY, "10") == first
    assert prices(ss.open_master(tmp_path, snapshot=first.files)) == {1}
    assert [p.batch for p in pins.all_pins(tmp_path)] == ["10", "9", "8"]


def test_pins_from_the_future_are_given_up_in_the_end(tmp_path):
    built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "7")
    later = time.time() + 365 * DAY
    os.utime(tmp_path / ".pins" / QUERY / "7", (later, later))
    remove_unneeded(tmp_path, 7 * DAY)
    assert [p.batch for p in pins.all_pins(tmp_path)] == ["7"]
    remove_unneeded(tmp_path, 7 * DAY, later + 8 * DAY)
    assert not pins.all_pins(tmp_path)
    pins.pin(tmp_path, QUERY, "7")
    os.utime(tmp_path / ".pins" / QUERY / "7", (later, later))
    clean_master(tmp_path, keep=0)
    assert not pins.all_pins(tmp_path)


def test_a_query_whose_pins_go_is_named(tmp_path, caplog):
    built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "7")
    pins.hold(tmp_path, "driver")
    remove_unneeded(tmp_path, 7 * DAY, time.time() + 8 * DAY)
    assert f"the pins of query {QUERY} are removed" in caplog.text
    assert "micro-batch 7" in caplog.text
    assert "driver" not in caplog.text


def test_pins_without_a_sequence_are_ordered_by_their_numbers(tmp_path):
    built(tmp_path, 1)
    for batch in ("8", "9", "10"):
        pins.pin(tmp_path, QUERY, batch)
        place = tmp_path / ".pins" / QUERY / batch
        content = json.loads(place.read_text())
        place.write_text(json.dumps({"files": content["files"]}))
    pins.pin(tmp_path, QUERY, "11")
    assert [p.batch for p in pins.all_pins(tmp_path)] == ["11", "10", "9"]


DAMAGED = (
    b"",
    b"\0" * 54,
    b"{}",
    b'{"files": 7}',
    b'{"files": "../../x"}',
    b'["files"]',
    b"[" * 9999,
)


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_pin_is_told_with_a_way_out_and_loses_no_snapshot(content, tmp_path, caplog):
    old = built(tmp_path, 1).manifest.files
    for batch in ("5", "6", "7", "8"):
        pins.pin(tmp_path, QUERY, batch)
    pin = tmp_path / ".pins" / QUERY / "8"
    pin.write_bytes(content)
    built(tmp_path, 2)
    with pytest.raises(MasterError, match=f"{pin}: this pin is damaged.*or remove it"):
        pins.pin(tmp_path, QUERY, "8")
    for other in ("5", "6", "7"):
        (pin.parent / other).unlink(missing_ok=True)
    built(tmp_path, 3)
    assert old in there(tmp_path)
    assert f"{pin}: damaged" in caplog.text
    for batch in ("9", "10", "11"):  # it was committed
        pins.pin(tmp_path, QUERY, batch)
    new = built(tmp_path, 4).manifest.files
    assert len(there(tmp_path)) == 2
    assert new in there(tmp_path)


def test_a_damaged_hold_is_made_anew(tmp_path):
    files = built(tmp_path, 1).manifest.files
    pins.hold(tmp_path, "someone")
    hold = tmp_path / ".pins" / "held-someone" / files
    hold.write_bytes(b"")
    pins.hold(tmp_path, "someone")
    assert json.loads(hold.read_text())["files"] == files


def test_a_pin_without_a_sequence_comes_after_those_with_one(tmp_path):
    built(tmp_path, 1)
    for batch in ("10", "11"):
        pins.pin(tmp_path, QUERY, batch)
        (tmp_path / ".pins" / QUERY / batch).write_bytes(b"")
    for batch in ("2", "3", "4"):  # the last commits of the checkpoint were taken back
        pins.pin(tmp_path, QUERY, batch)
    assert {path.name for path in (tmp_path / ".pins" / QUERY).iterdir()} == {"2", "3", "4"}


def test_who_can_read_a_lock_alone_cannot_take_it(tmp_path):
    """Where all who may write the folder may lock, and no one else, no one else can stop them."""
    for mode, wanted in ((0o755, 0o600), (0o775, 0o660), (0o777, 0o666)):
        folder = tmp_path / oct(mode)
        folder.mkdir()
        folder.chmod(mode)
        built(folder, 1)
        (folder / ".pins").mkdir()
        (folder / ".pins").chmod(mode)
        pins.pin(folder, QUERY, "0")
        found = [(folder / name).stat().st_mode & 0o777 for name in (".lock", ".pins/lock")]
        assert found == [wanted, wanted]


def test_a_lock_that_is_held_for_long_is_named(tmp_path, caplog):
    path = tmp_path / "lock"
    holder, waiting = locks.open_lock(path), locks.open_lock(path)
    pins.fcntl.flock(holder, pins.fcntl.LOCK_EX)
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += 1.0

    with pytest.raises(MasterError, match=f"{path}: another process has held this lock for 600 s"):
        locks.wait_for_lock(waiting, pins.fcntl.LOCK_SH, path, lambda: now[0], sleep)
    assert caplog.text.count("waiting for a lock that another process holds") == 1
    assert (slept[0], max(slept)) == (0.001, 0.1)

    def let_go(_):
        pins.fcntl.flock(holder, pins.fcntl.LOCK_UN)

    locks.wait_for_lock(waiting, pins.fcntl.LOCK_SH, path, lambda: 0.0, let_go)
    os.close(holder)
    os.close(waiting)


def test_what_is_no_folder_of_pins_is_told(tmp_path):
    built(tmp_path, 1)
    (tmp_path / ".pins").write_text("")
    assert not pins.can_pin(tmp_path)
    with pytest.raises(MasterError, match=r"\.pins is a file, and must be a folder"):
        pins.pin(tmp_path, QUERY, "0")


def test_the_first_pin_is_found_after_a_power_cut(tmp_path, monkeypatch):
    """A name is on disk when its folder was synced after it was made."""
    built(tmp_path, 1)
    on_disk, real = set(), files.os.fsync

    def fsync(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_dir():
            on_disk.update(path.iterdir())
        real(handle)

    monkeypatch.setattr(files.os, "fsync", fsync)
    pins.pin(tmp_path, QUERY, "0")
    wanted = tmp_path / ".pins" / QUERY / "0"
    assert {wanted, wanted.parent, wanted.parent.parent} <= on_disk
    built(tmp_path / "a" / "b", 1)
    assert {tmp_path / "a", tmp_path / "a" / "b"} <= on_disk


def test_no_master_to_pin(tmp_path):
    with pytest.raises(MasterNotFoundError):
        pins.pin(tmp_path / "none", QUERY, "0")


def test_pins_hold_while_builds_remove(tmp_path):
    """Twins of two queries pin and open as fast as they can, side by side, while one builds."""
    built(tmp_path, 0)

    enough = threading.Event()

    def read(query, beside, last):
        files = []
        while beside.wait(60) >= 0 and not last[-1]:
            files.append(pins.pin(tmp_path, query, str(len(files))).files)
            ss.open_master(tmp_path, snapshot=files[-1]).verify()
        return files

    with ThreadPoolExecutor(4) as pool:
        running = []
        for number in range(2):
            last = []  # the same for both twins
            beside = threading.Barrier(2, action=lambda told=last: told.append(enough.is_set()))
            running += [pool.submit(read, f"{QUERY}{number}", beside, last) for _ in range(2)]
        for number in range(1, 20 if ALL else 9):
            built(tmp_path, number, rows=50)
        enough.set()
        one, its_twin, other, their_twin = (each.result() for each in running)
    assert (one, other) == (its_twin, their_twin)
    assert len(set(one)) > (5 if ALL else 2)
    for later in range(number + 1, max(number, 2 * pins.KEPT) + 2):
        built(tmp_path, later)
    assert len(there(tmp_path)) <= 1 + 2 * pins.KEPT


# -- what goes ------------------------------------------------------------------------------------


def test_snapshots_go_when_their_query_is_past_them(tmp_path):
    for batch in range(10):
        built(tmp_path, batch)
        pins.pin(tmp_path, QUERY, str(batch))
    assert len(there(tmp_path)) == 4  # the newest was current when the oldest was let go
    assert len(clean_master(tmp_path)) == 1
    assert len(there(tmp_path)) == 3


def test_pins_and_notes_of_queries_that_were_not_seen_go(tmp_path):
    old = built(tmp_path, 1)
    for query in ("1", "2"):
        pins.pin(tmp_path, QUERY + query, "0")
        (tmp_path / f".query-{QUERY}{query}-{'0' * 16}").write_text("shape")
    held = pins.hold(tmp_path, "driver")
    assert held.files == old.manifest.files
    built(tmp_path, 2)
    week_ago = time.time() - 6.5 * DAY
    for path in (tmp_path / ".pins").glob(f"{QUERY}1/*"):
        os.utime(path, (week_ago, week_ago))
    for note in tmp_path.glob(".query-*"):
        os.utime(note, (week_ago, week_ago))
    remove_unneeded(tmp_path, 7 * DAY, time.time() + DAY)
    assert [p.query for p in pins.all_pins(tmp_path)] == [f"{QUERY}2"]
    assert [p.name[7:43] for p in tmp_path.glob(".query-*")] == [f"{QUERY}2"]
    assert len(there(tmp_path)) == 2
    remove_unneeded(tmp_path, 7 * DAY, time.time() + 8 * DAY)
    assert len(there(tmp_path)) == 1
    assert not list(tmp_path.glob(".query-*"))


def test_who_holds_a_snapshot_lets_it_go(tmp_path):
    built(tmp_path, 1)
    pins.hold(tmp_path, "driver")
    new = built(tmp_path, 2)
    assert len(there(tmp_path)) == 2
    assert list_snapshots(tmp_path)[1].pinned_by == ("a DataFrame",)
    pins.release(tmp_path, "driver")
    clean_master(tmp_path)
    assert there(tmp_path) == [new.manifest.files]


def test_removal_waits_for_who_is_pinning(tmp_path):
    built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "0")
    done = threading.Event()

    def clean():
        clean_master(tmp_path)
        done.set()

    thread = threading.Thread(target=clean)
    with pins._locked(tmp_path, pins.fcntl.LOCK_SH):
        thread.start()
        assert not done.wait(0.2)
    thread.join()
    assert done.is_set()


def test_drivers_that_end_while_snapshots_are_removed(tmp_path, caplog):
    built(tmp_path, 1)
    done = threading.Event()

    def drive():
        while not done.is_set():
            pins.hold(tmp_path, "driver")
            pins.release(tmp_path, "driver")

    with ThreadPoolExecutor(2) as pool:
        drivers = [pool.submit(drive) for _ in range(2)]
        try:
            for _ in range(50 if ALL else 6):
                remove_unneeded(tmp_path)
                pins.all_pins(tmp_path)
        finally:
            done.set()
    assert [driver.result() for driver in drivers] == [None, None]
    # A busy machine may warn of a slow lock, and of nothing else.
    assert not [said for said in caplog.messages if "lslocks" not in said]


def test_a_holder_of_a_master_that_is_gone_lets_it_go(tmp_path):
    pins.release(tmp_path / "gone", "driver")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), ValueError("damaged")])
def test_what_cannot_be_removed_does_not_make_a_build_fail(error, tmp_path, monkeypatch, caplog):
    built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "0")

    def refuse(*_):
        raise error

    monkeypatch.setattr("semistream.master.snapshots.removal.remove_stale", refuse)
    assert prices(built(tmp_path, 2)) == {2}
    assert "cannot be removed" in caplog.text
    assert len(there(tmp_path)) == 2


def test_a_manifest_that_was_lost_takes_no_snapshot_with_it(tmp_path, caplog):
    master = built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "7")
    names = {path.name for path in tmp_path.glob("[!.]*")} - {"manifest.json"}
    (tmp_path / "manifest.json").unlink()
    (tmp_path / ".draft-0").touch()
    way = f"cp {tmp_path / master.manifest.name('manifest')} {tmp_path / 'manifest.json'}"
    with pytest.raises(MasterNotFoundError, match=way):
        ss.open_master(tmp_path)

    def broken():
        yield table(2).to_batches()[0]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ss.build_master(
            pa.RecordBatchReader.from_batches(table(2).schema, broken()), tmp_path, key="id"
        )
    assert {path.name for path in tmp_path.glob("[!.]*")} == names
    assert way in caplog.text
    assert not (tmp_path / ".draft-0").exists()
    shutil.copy(tmp_path / master.manifest.name("manifest"), tmp_path / "manifest.json")
    assert prices(ss.open_master(tmp_path)) == {1}


# -- changes --------------------------------------------------------------------------------------


def test_changes_add_up_over_generations_even_of_removed_snapshots(tmp_path):
    ids = [built(tmp_path, 0).snapshot]
    for number in range(1, 12):
        new = pa.table({"id": [number], "price": [number]})
        master = ss.sync_master(tmp_path, upserts=new).master
        ids.append(master.snapshot)
    assert len(there(tmp_path)) == 1
    found = list(master.changes_since(1_000))
    assert [snapshot for snapshot, _ in found] == ids[-2:-10:-1]
    assert [codes.tolist() for _, codes in found][:3] == [[11], [10, 11], [9, 10, 11]]
    assert len(list(master.changes_since(3))) == 3
    (tmp_path / f"{master.manifest.parent}.changes").unlink()
    assert len(list(master.changes_since(1_000))) == 1
    built(tmp_path, 5)
    assert len(list(tmp_path.glob("[!.]*"))) == 5


# -- the command ----------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(app, ["master", *map(str, words)])


def test_the_commands_list_and_clean(tmp_path):
    old = built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "3")
    new = built(tmp_path, 2)
    told = json.loads(run("snapshots", tmp_path, "--json").output)
    assert [s["files"] for s in told] == [new.manifest.files, old.manifest.files]
    assert told[1]["pinned_by"] == [f"{QUERY} batch 3"]
    assert "needed by" in run("snapshots", tmp_path).output
    assert "0 snapshots removed, 2 stay" in run("clean", tmp_path).output
    removed = json.loads(run("clean", tmp_path, "--keep", "0s", "--json").output)["removed"]
    assert removed == [old.manifest.files]
    assert run("clean", tmp_path, "--keep", "soon").exit_code == 1
    assert run("snapshots", tmp_path / "none").exit_code == 1


def test_how_long_is_checked(tmp_path):
    built(tmp_path, 1)
    with pytest.raises(OptionError, match="keep='7 weeks' is not a time"):
        clean_master(tmp_path, keep="7 weeks")
    assert not (tmp_path / "none").exists()
    with pytest.raises(MasterNotFoundError):
        clean_master(tmp_path / "none")


def test_a_rebuild_restores_a_lost_copy_of_the_manifest_that_a_batch_needs(tmp_path):
    old = built(tmp_path, 1)
    pins.pin(tmp_path, QUERY, "0")
    (tmp_path / old.manifest.name("manifest")).unlink()
    built(tmp_path, 2)
    assert prices(ss.open_master(tmp_path, snapshot=old.manifest.files)) == {1}
