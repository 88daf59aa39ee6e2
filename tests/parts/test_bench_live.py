"""The tables of the benchmark on databases; with ``pytest --all`` the benchmark itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import sheets

ROOT = Path(__file__).parents[2]


def test_ratios_are_round_by_round() -> None:
    def system(*rounds: int, queries: int) -> dict[str, object]:
        took = [[9_000, 9_000, one] for one in rounds]
        return {"batch_rows": 100_000, "milliseconds": took, "queries_a_million": queries}

    systems = {
        "enrich": system(400, 500, queries=200),
        "plain": system(4000, 5000, queries=100),
        "jdbc": system(2400, 2500, queries=310),
        "rows": system(5000, 10_000, queries=1_000_000),
        "bound": system(300, 250, queries=0),
    }
    cell = {"store": "postgresql", "version": "PostgreSQL 15.1 (Debian)", "rows": 2_000_000}
    cell |= {"batch_rows": 100_000, "memory": 12_000_000, "chunk": 5000, "systems": systems}
    record = {"kind": "live", "cells": [cell], "machine": {"master": "local[2]"}}
    (sheet,) = sheets(record | {"grid": {"exponent": 1.0, "dropped": 2}})
    assert sheet.title.startswith("PostgreSQL 15.1: R = 2,000,000")
    rates, ratios = [row[3] for row in sheet.rows], [row[5] for row in sheet.rows]
    assert rates == ["225 (200–250)", "22 (20–25)", "41 (40–42)", "15 (10–20)", "367 (333–400)"]
    assert ratios[:4] == ["", "10.0× (10.0–10.0)", "5.5× (5.0–6.0)", "16.2× (12.5–20.0)"]
    assert ratios[4] == "0.6× (0.5–0.8)"
    assert sheet.note.endswith("9.0× (8.0–10.0) in batches of 100,000 (11.44 MB)")


@pytest.mark.parts
@pytest.mark.long
def test_the_benchmark_runs(tmp_path: Path) -> None:
    output = tmp_path / "live.json"
    command = [sys.executable, "-m", "benchmarks", "live", "--quick", "--output", str(output)]
    path = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    subprocess.run([*command, "--data", str(tmp_path / "data")], cwd=ROOT, env=env, check=True)  # noqa: S603
    record = json.loads(output.read_text())
    assert [cell["store"] for cell in record["cells"]] == ["postgresql", "mysql"]
    for cell in record["cells"]:
        asked = {name: system["queries_a_million"] for name, system in cell["systems"].items()}
        assert asked["rows"] >= 900_000
        assert asked["enrich"] < 100_000
