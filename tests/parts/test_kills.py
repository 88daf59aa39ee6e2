"""The short form of ``make kills``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.data import Data, LateData
from support.kills import Run, WaitRun, cluster_config
from support.servers.connectors import require

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers.cluster import Cluster

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("kills")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    made = Data(tmp_path_factory.mktemp("data") / "data", files=12, rows=50_000)
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


def test_delta_has_every_row_once_after_a_killed_executor(
    data: Data, cluster: Cluster, tmp_path: Path
) -> None:
    config = {**require("delta"), **cluster_config()}
    run = Run(data, tmp_path / "run", "delta", cluster.address, config, cluster)
    run.execute(["executor", "worker"])
    assert data.differences(run.result) == (0, 0)
    assert run.done == {"executor": 1, "worker": 1, "starts": 1}


def test_delta_has_every_row_once_after_killed_executors_that_look_up_in_java(
    data: Data, cluster: Cluster, tmp_path: Path
) -> None:
    config = {**require("delta"), **cluster_config()}
    run = Run(data, tmp_path / "run", "delta", cluster.address, config, cluster)
    run.execute(["executor", "driver"])
    assert data.differences(run.result) == (0, 0)
    assert run.done == {"executor": 1, "driver": 1, "starts": 2}
    assert "PythonRunner" not in run.log.read_text()


@pytest.mark.long
def test_rows_that_wait_come_out_once_after_killed_drivers(tmp_path: Path) -> None:
    late = LateData(tmp_path / "late", files=8, rows=10_000)
    late.write()
    run = WaitRun(late, tmp_path / "run", "delta", config=require("delta"))
    run.execute(["driver", "driver"])
    assert late.differences(run.result) == (0, 0)
    assert run.done == {"driver": 2, "starts": 3}
