"""An experiment of the papers on Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from papers.run.runner import measured
from support.papers import EXPERIMENTS, MACHINE, TINY


@pytest.mark.parts
def test_pcsrj_runs_on_spark(tmp_path):
    name = "pcsrj/figure-spark"
    experiment = replace(EXPERIMENTS[name], values=(1.0, 2.0))
    (record,) = measured(name, experiment, TINY, tmp_path, MACHINE, lambda _: None)
    wanted = {(label, tasks) for label in ("pcsrj", "adaptive") for tasks in (1.0, 2.0)}
    assert {(one["label"], one["x"]) for one in record["runs"]} == wanted
    assert all(one["value"] > 0 and len(one["samples"]) == 1 for one in record["runs"])
