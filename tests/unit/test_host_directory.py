"""The directory of pages that processes of a host share: what one notes is not lost to another."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.arrow.page_directory import PageDirectory
from semistream.engine import lookup as directory
from semistream.engine.lookup import Directory
from semistream.kernels import memory as raw

NAMES = [f"c{i}" for i in range(8)]
PAGE = pa.schema([pa.field("code", pa.int64(), nullable=False), *[(n, pa.int64()) for n in NAMES]])
SPAWN = multiprocessing.get_context("spawn")


def page(nulls: bool) -> pa.Buffer:
    values = pa.array([None if nulls and i == 3 else i for i in range(50)], pa.int64())
    columns = [pa.array(np.arange(50)), *[values] * len(NAMES)]
    return pa.RecordBatch.from_arrays(columns, schema=PAGE).serialize()


def shared_memory() -> mmap.mmap:
    """Whole pages of memory, so that they can be protected."""
    return mmap.mmap(-1, mmap.PAGESIZE)


def protect(memory: mmap.mmap) -> None:
    """Let whoever stores a byte there end by SIGSEGV; NumPy takes it for writable all the same."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ) == 0


def note_without_nulls() -> None:
    """Note a page without nulls beside flags that must not be stored to, then one with nulls."""
    lines, numbers = np.array([2]), np.array([1, 2, 3])
    memory, out = shared_memory(), np.empty(3, dtype=np.int32)
    flags = np.frombuffer(memory, np.bool_)
    flags[0] = True
    found = raw.buffer_offsets(page(True).address, numbers, out, lines, flags)
    protect(memory)
    without = page(False)
    raw.buffer_offsets(without.address, numbers, out, lines, flags)
    os._exit(0 if flags[0] and found is None else 1)


def test_a_page_without_nulls_stores_no_flag():
    """Whoever stores a 0 that it has loaded before takes away the 1 that another has stored."""
    child = SPAWN.Process(target=note_without_nulls)
    child.start()
    child.join()
    assert child.exitcode == 0


def keep_noting(path, stop, count) -> None:
    blocks, without = opened(path), page(False)
    while not stop.value:
        blocks.note(0, np.array([without.address]))
        count.value += 1


def opened(path) -> PageDirectory:
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), PageDirectory.shared_bytes(PAGE, NAMES, 2))
    return PageDirectory(PAGE, NAMES, 2, np.frombuffer(memory, np.uint8))


def test_nulls_that_one_process_has_seen_are_known_to_all(tmp_path):
    path, with_nulls = tmp_path / "directory", page(True)
    path.write_bytes(bytes(PageDirectory.shared_bytes(PAGE, NAMES, 2)))
    blocks = opened(path)
    stop, count = SPAWN.Value("i", 0, lock=False), SPAWN.Value("q", 0, lock=False)
    other = SPAWN.Process(target=keep_noting, args=(path, stop, count))
    other.start()
    try:
        for _ in range(500):
            blocks._nulls[:] = False
            blocks.note(1, np.array([with_nulls.address]))
            seen = count.value
            while count.value <= seen + 1 and other.is_alive():
                pass
            assert blocks._nulls.all()
    finally:
        stop.value = 1
        other.join()


@pytest.fixture
def master(tmp_path):
    table = pa.table({"key": np.arange(1000), "a": np.arange(1000), "b": np.arange(1000)})
    return partial(ss.build_master, table, tmp_path / "master", key="key", page_bytes="4KB")


def names(root):
    return sorted(folder.name for folder in root.iterdir())


def age(root, minutes: float) -> None:
    for folder in root.iterdir():
        os.utime(folder, (0, time.time() - 60 * minutes))


def test_a_directory_of_another_format_is_not_read(master, tmp_path, monkeypatch):
    root = tmp_path / "root"
    Directory(root, master(), ["a"], 64).bytes[:] = 1
    assert Directory(root, ss.open_master(tmp_path / "master"), ["a"], 64).bytes.all()
    monkeypatch.setattr(directory, "_FORMAT", directory._FORMAT + 1)
    assert not Directory(root, ss.open_master(tmp_path / "master"), ["a"], 64).bytes.any()


def test_directories_of_replaced_snapshots_are_removed_soon(master, tmp_path):
    root, first = tmp_path / "root", master()
    for wanted in (["a"], ["b"]):
        Directory(root, first, wanted, 64)
    old = names(root)
    changed = pa.table({"key": [5], "a": [0], "b": [0]})
    second = ss.sync_master(tmp_path / "master", upserts=changed).master
    age(root, minutes=2)
    Directory(root, second, ["a"], 64)
    assert len(set(names(root)) & set(old)) == 1  # other columns may be another query's
    age(root, minutes=11)
    held = Directory(root, second, ["a", "b"], 64)
    assert len(names(root)) == 1
    age(root, minutes=11)
    Directory(root, second, ["b"], 64)
    assert len(names(root)) == 2  # one is in use
    assert held.bytes.size == 64
