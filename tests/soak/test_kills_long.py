"""Killed drivers while rows wait, and while a master is updated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from support.data import LateData
from support.driver import FILES_A_BATCH
from support.kills import Run, WaitRun
from support.servers.connectors import require
from support.updates import Updates, put

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("kills")]


def test_rows_that_wait_come_out_once_after_killed_drivers(tmp_path: Path) -> None:
    late = LateData(tmp_path / "late", files=8, rows=10_000)
    late.write()
    run = WaitRun(late, tmp_path / "run", "delta", config=require("delta"))
    run.execute(["driver", "driver"])
    assert late.differences(run.result) == (0, 0)
    assert run.done == {"driver": 2, "starts": 3}


def test_a_hundred_updates_while_workers_and_drivers_are_killed(tmp_path):
    master, files, rows = Updates(tmp_path / "master"), 24, 20_000
    for number in range(files):
        put(tmp_path / "stream", number, rows, FILES_A_BATCH)
    data = SimpleNamespace(stream=tmp_path / "stream", master=master.path, files=files)
    run = Run(data, tmp_path / "run", "delta", config=require("delta"))
    with master.going_on(0.1):
        run.execute(["worker", "driver"])
    found = pq.read_table(run.result)
    assert sorted(found["sale"].to_pylist()) == list(range(files * rows))
    assert master.wrong(found) == 0
    assert master.count >= 100
    assert len(set(master.pins.values())) > 7
    assert run.done == {"worker": 1, "driver": 1, "starts": 2}
