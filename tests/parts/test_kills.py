"""The short form of ``make kills``: each kind of process is killed, in Python and in Java."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.master.snapshots import pins
from support.data import Data
from support.driver import FILES_A_BATCH
from support.kills import Run, cluster_config
from support.servers.connectors import require

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers.cluster import Cluster

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("kills")]


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    made = Data(tmp_path_factory.mktemp("data") / "data", files=16, rows=40_000)
    made.write()
    return made


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """As much as a run into files has not done before something is killed."""
    made = Data(tmp_path_factory.mktemp("many") / "data", files=48, rows=50_000)
    made.write()
    return made


def test_files_have_every_row_once_after_a_killed_worker_and_a_killed_driver(
    many: Data, tmp_path: Path
) -> None:
    run = Run(many, tmp_path / "run", "parquet")
    run.execute(["worker", "driver"])
    assert many.differences(run.result) == (0, 0)
    assert run.done == {"worker": 1, "driver": 1, "starts": 2}
    assert run.lost_tasks() >= 1


@pytest.mark.long
def test_delta_has_every_row_once_after_a_killed_executor(
    data: Data, cluster: Cluster, tmp_path: Path
) -> None:
    config = {**require("delta"), **cluster_config()}
    run = Run(data, tmp_path / "run", "delta", cluster.address, config, cluster)
    run.execute(["executor", "worker"])
    assert data.differences(run.result) == (0, 0)
    assert run.done == {"executor": 1, "worker": 1, "starts": 1}


class Renewed(Run):
    """Its master is built anew when the driver was killed in a batch."""

    batch, files = -1, ""

    def _kill(self, kind: str) -> None:
        if kind != "driver":
            super()._kill(kind)
            return
        self.batch, self.files = self.kill_in_a_batch()
        self.done[kind] += 1
        old = pq.read_table(self.data.folder / "products.parquet")
        new = old.set_column(1, "surrogate", pa.array(old["surrogate"].to_numpy() + 1))
        ss.build_master(new, self.data.master, key="key")


def test_delta_has_every_row_once_after_kills_with_java_and_a_batch_keeps_its_snapshot(
    data: Data, cluster: Cluster, tmp_path: Path
) -> None:
    """An executor is killed, then the driver in a batch, which it repeats on the old snapshot."""
    for number, file in enumerate(sorted(data.stream.iterdir())):  # the order of the stream
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    config = {**require("delta"), **cluster_config()}
    run = Renewed(data, tmp_path / "run", "delta", cluster.address, config, cluster)
    run.execute(["executor", "driver"])
    assert (run.done["executor"], run.done["driver"]) == (1, 1)
    assert run.done["starts"] >= 2
    assert "PythonRunner" not in run.log.read_text()
    pinned = [p for p in pins.all_pins(data.master) if p.batch == str(run.batch)]
    assert {p.pin.files for p in pinned} <= {run.files}
    found = pq.read_table(run.result)
    assert sorted(found["sale"].to_pylist()) == list(range(data.files * data.rows))
    later = found["sale"].to_numpy() // (FILES_A_BATCH * data.rows) > run.batch
    keys = found["key"].to_numpy()
    there = keys < 100_000
    expected = np.where(there, keys * 7 + later, -1)
    assert (found["surrogate"].fill_null(-1).to_numpy() == expected).all()
    names = [f"product {key}" if known else None for key, known in zip(keys, there, strict=True)]
    assert found["name"].to_pylist() == names
