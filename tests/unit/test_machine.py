"""What memory is free: of the host, and of the control groups around a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from semistream.system import machine

GB = 1 << 30


@pytest.fixture
def host(tmp_path: Path, monkeypatch) -> Path:
    """Return a root of control groups; the host has 16 GB available."""
    monkeypatch.setattr(machine, "_available", lambda: 16 * GB)
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    return tmp_path


def member_of(lines: str, monkeypatch, tmp_path: Path) -> None:
    own = tmp_path / "self"
    own.write_text(lines)
    groups = machine._groups
    monkeypatch.setattr(machine, "_groups", lambda _, root: groups(own, root))


def put(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_cached_files_count_as_free_and_the_heap_does_not(host, monkeypatch):
    member_of("0::/pod/container\n", monkeypatch, host)
    stat = f"anon {GB}\nactive_file {GB // 2}\ninactive_file {GB // 4}\nshmem 7"
    use = 2 * GB
    put(host / "pod" / "container", memory__max=3 * GB, memory__current=use, memory__stat=stat)
    put(host / "pod", memory__max="max", memory__current=use, memory__stat=stat)
    assert machine.free_memory() == GB + 3 * GB // 4


def test_the_tightest_group_around_counts(host, monkeypatch):
    member_of("0::/pod/container\n", monkeypatch, host)
    put(host / "pod" / "container", memory__max=8 * GB, memory__current=0, memory__stat="")
    put(host / "pod", memory__max=4 * GB, memory__current=GB, memory__stat="")
    assert machine.free_memory() == 3 * GB


def test_groups_of_version_1_and_a_container_that_sees_only_its_root(host, monkeypatch):
    member_of("5:cpu:/x\n4:memory,blkio:/docker/abc\n", monkeypatch, host)
    stat = f"total_active_file {GB}\ntotal_inactive_file 0\nactive_file 5"
    put(
        host / "memory",
        memory__limit_in_bytes=2 * GB,
        memory__usage_in_bytes=3 * GB // 2,
        memory__stat=stat,
    )
    assert machine.free_memory() == 3 * GB // 2


def test_a_group_over_its_limit_leaves_nothing_and_none_leaves_the_host(host, monkeypatch):
    member_of("0::/a\n", monkeypatch, host)
    assert machine.free_memory() == 16 * GB
    put(host / "a", memory__max=GB, memory__current="")  # it cannot be read
    assert machine.free_memory() == 16 * GB
    put(host / "a", memory__max=GB, memory__current=2 * GB, memory__stat="")
    assert machine.free_memory() == 0


def test_memory_of_a_process_above():
    assert machine.process_above("no such process") == 0
    assert machine.process_memory(0) == 0
    name = Path("/proc/self/comm").read_text().strip()
    asks = (
        "from semistream.system.machine import process_above, process_memory;"
        f"print(process_memory(process_above({name!r})) > 1 << 20)"
    )
    run = [sys.executable, "-c", asks]
    assert subprocess.run(run, check=True, capture_output=True).stdout == b"True\n"  # noqa: S603
