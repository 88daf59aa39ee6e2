"""A quick version of the benchmark in a memory cgroup: the group is there, and rows are right."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.harness.cgroup import NoGroupError, memory_group
from benchmarks.harness.record import read_record
from support.cli import sheets

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]
SYSTEMS = ("none", "enrich", "sort-merge", "duckdb-batch", "rocksdb-async")


def test_a_quick_run(tmp_path):
    try:
        with memory_group("semistream-test"):
            pass
    except NoGroupError as error:
        pytest.skip(str(error))
    path = tmp_path / "confined.json"
    chosen = [part for name in SYSTEMS for part in ("--system", name)]
    command = [sys.executable, "-m", "benchmarks", "confined", "--quick", *chosen]
    # What it starts is found by the paths that only this process has.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, "--data", str(tmp_path), "--output", str(path)],
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    if "can't be dropped" in done.stderr:
        pytest.skip("this file system keeps its pages")
    assert done.returncode == 0, done.stderr
    record = read_record(path)
    (cell,) = record["cells"]
    assert cell["failed"] == {}
    assert set(cell["milliseconds"]) == set(SYSTEMS)
    limit = sum(cell["limit"].values())
    for (turn,) in cell["facts"].values():
        assert 0 < turn.get("peak", 1) <= limit
        assert turn["left_cached"] <= 0.01 * cell["pages_bytes"]
        assert turn["device"]["reads"] > 0
    for batch in cell["facts"]["enrich"][0]["batches"]:
        assert batch["held"] <= batch["budget"] == cell["memory"]
    overview, systems = sheets(record)
    assert len(systems.rows) == len(SYSTEMS)
    assert overview.rows[0][0] == systems.title
