"""Measuring in a memory cgroup: limits, the page cache, and what the disk allows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks.harness import cgroup
from benchmarks.harness.cgroup import NoGroupError, memory_group
from benchmarks.harness.memory import drop_cached, resident_bytes
from benchmarks.harness.processes import Child, ChildError
from benchmarks.spark.confined.device import Demand, Device, count_demand, demand_of, measure_device
from benchmarks.spark.confined.grid import ALL, LARGEST, ConfinedGrid
from benchmarks.spark.confined.tables import bound, device_of
from benchmarks.spark.data import Products, Sales
from benchmarks.spark.systems import SYSTEMS
from semistream.system.machine import free_memory
from semistream.workloads import Zipf
from support.cli import sheets


@pytest.fixture
def group():
    try:
        with memory_group("semistream-test") as made:
            yield made
    except NoGroupError as error:
        pytest.skip(str(error))


# -- the group, and the page cache ------------------------------------------------------------


def test_a_group_has_its_limit_and_goes_away(group):
    group.limit(64 << 20)
    assert int((group.path / cgroup._LIMIT[group.version]).read_text()) == 64 << 20
    assert group.members.read_text() == ""


def test_a_group_knows_what_its_members_had(group):
    wait = "import sys; sys.stdin.readline(); held = b'x' * (32 << 20); print('held', flush=True)"
    child = subprocess.Popen(  # noqa: S603 - a line of our own
        [sys.executable, "-c", f"{wait}; sys.stdin.readline()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        group.add(child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "held\n"
        usage = group.read_usage()
        assert usage.get("peak", 32 << 20) >= 32 << 20
        assert usage["limited"] == 0
        group.end_members()
        assert child.wait() != 0


def test_members_see_the_group_as_a_container_does(group):
    group.limit(256 << 20)
    try:
        with Child(30.0, group=group) as child:
            seen = child.call(free_memory)
    except ChildError:
        pytest.skip("no right to mount")
    assert 128 << 20 < seen <= 256 << 20  # without what the process itself holds
    assert free_memory() > 256 << 20


def test_without_groups_there_is_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "_own_group", lambda: (tmp_path / "nothing", 1))
    with pytest.raises(NoGroupError, match="no memory cgroup can be made"), memory_group("x"):
        pass
    monkeypatch.setattr(cgroup, "_own_group", lambda: (tmp_path, 2))
    with pytest.raises(NoGroupError, match="does not let groups below it"), memory_group("x"):
        pass
    assert not list(tmp_path.iterdir())


def test_pages_are_dropped(tmp_path):
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    file.write_bytes(bytes(1 << 20))
    assert resident_bytes(tmp_path) == 1 << 20
    assert drop_cached(tmp_path) <= 1 << 20


# -- what is measured -------------------------------------------------------------------------


def test_the_grid_varies_one_thing_at_a_time():
    cells = replace(ConfinedGrid(), full=True).cells
    assert {cell.rows for cell in cells} == {20_000_000, 50_000_000, LARGEST}
    assert {cell.share for cell in cells} == {0.01, 0.05, 0.10}
    assert {cell.exponent for cell in cells} == {0.5, 1.0, 1.2}
    assert {cell.batch_rows for cell in cells} == {10_000, 100_000, 500_000, 1_000_000}
    assert {cell.realistic for cell in cells} == {False, True}
    base = asdict(cells[0])
    for cell in cells:
        differs = {name for name, value in asdict(cell).items() if value != base[name]}
        assert len(differs) <= 1 or differs == {"how", "batch_rows"}
    middle = replace(ConfinedGrid(), middle=True).cells
    assert len(middle) == len(set(middle)) == 6
    assert set(ALL) <= set(SYSTEMS)


def test_the_limit_leaves_the_page_cache_a_fifth_of_the_master():
    grid = ConfinedGrid()
    for cell in grid.cells:
        products = Products(cell.rows, None)
        budget = int(cell.share * products.bytes)
        parts = grid.compose_limit(cell, budget)
        assert parts["page cache"] <= products.bytes / 5
        assert parts["budget"] == budget
        assert sum(parts.values()) - parts["page cache"] - budget == (1024 + 320 + 384) << 20
    largest = replace(grid.cells[0], rows=LARGEST)
    assert not grid.is_confined(largest)
    assert set(grid.systems_of(largest)) == {"none", "enrich", "default", "duckdb"}


# -- what the disk allows ---------------------------------------------------------------------


def test_the_most_frequent_keys_are_those_of_the_first_ranks(tmp_path):
    keys, hot = 1_000, 100
    stream = Sales(keys, 1.0, 2_000, 5).prepare(tmp_path)
    demand = demand_of(stream, keys, 1.0, hot)
    expected = Zipf(keys, 1.0).probability(np.arange(1, hot + 1)).sum()
    assert demand.best_share == pytest.approx(expected, abs=0.02)
    assert 400 < demand.cold_keys < keys - hot
    assert demand_of(stream, keys, 1.0, 2 * keys) == Demand(1.0, 0.0)


def test_nothing_is_hot_without_memory():
    assert count_demand([np.array([1, 1, 2])], np.array([], np.int64)) == Demand(0.0, 2.0)


def test_a_disk_is_measured(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(4 << 20))
    try:
        device = measure_device(file, 0.05, np.random.default_rng(0))
    except OSError:
        pytest.skip("this file system has no direct reads")
    assert device.bandwidth > 0
    assert device.reads > 0


# -- what is shown ----------------------------------------------------------------------------


def _turn(reads, batches):
    device, held = asdict(Device(1000.0, reads)), {"all": 5 << 28}
    cached = {"cached": 100, "left_cached": 0}
    group = {"limited": 3, "peak": 2 << 30}
    return {"batches": batches, "device": device, "processes": held} | cached | group


def test_every_row_has_its_share_of_what_the_disk_allows():
    cell = asdict(ConfinedGrid().cells[0]) | {"memory": 100, "pages_bytes": 1000}
    batch = {"hit_rate": 0.5, "pages_read": 7, "bytes_read": 700, "held": 90, "budget": 100}
    cell |= {
        "batch_rows": 100,
        "limit": {"heap": 1 << 30, "page cache": 1 << 20},
        "demand": {"best_share": 0.8, "cold_keys": 50.0},
        "milliseconds": {"enrich": [[9, 9, 1000], [9, 9, 1000]], "default": [[4000], [4000]]},
        "facts": {
            "enrich": [_turn(100.0, [batch] * 3), _turn(100.0, [batch] * 3)],
            "default": [_turn(100.0, []), _turn(50.0, [])],
        },
        "failed": {"lmdb": "out of memory"},
    }
    assert device_of(cell) == Device(1000.0, 100.0)  # the median, whatever one turn saw
    assert bound(cell) == 200.0
    labels = {name: name for name in ("enrich", "default", "lmdb")}
    record = {"kind": "confined", "dropped": 2, "labels": labels, "cells": [cell]}
    overview, systems = sheets(record)
    assert overview.rows[0][3:] == ("0.50 (0.50–0.50)", "4.00× (4.00–4.00)", "–")
    assert systems.rows[0][2:7] == ("0.50 (0.50–0.50)", "50.0% of 80.0%", "7", "700 B", "90%")
    assert systems.rows[1][2] == "0.12 (0.12–0.12)"
    assert systems.rows[2][:3] == ("lmdb", "failed", "out of memory")
    assert {len(row) for row in systems.rows} == {len(systems.heads)}
    assert "limit 1.001 GB: heap 1 GB, page cache 1 MB" in systems.note
