"""Growth and drift: small versions of both, their tables and their figures."""

import pytest

from benchmarks.engine.drift import rows_until_back
from benchmarks.engine.growth import best_published
from benchmarks.harness.record import read_record
from support.cli import bench, sheets

FEW = ["--algorithm", "cachejoin", "--algorithm", "hybridjoin"]


def test_growth_is_measured_at_a_share_and_at_a_constant(tmp_path):
    record, figure = tmp_path / "growth.json", tmp_path / "growth.svg"
    small = ["--rows", 60_000, "--rows", 120_000, "--seconds", 0.01, "--rounds", 2]
    where = ["--data", tmp_path, "--output", record, "--memory", "512KB"]
    drawn = ["--figures", tmp_path] if has_matplotlib() else []
    shown = bench("growth", *small, *FEW, *where, *drawn, "--read", "mapped")
    assert shown.exit_code == 0, shown.output
    found = read_record(record)
    assert [(p["rows"], p["budget"], p["memory"]) for p in found["points"]] == [
        (60_000, "share", 360_000),
        (60_000, "constant", 512 << 10),
        (120_000, "share", 720_000),
        (120_000, "constant", 512 << 10),
    ]
    for point in found["points"]:
        assert set(point["rates"]) == {"cachejoin", "hybridjoin"}
        for rate in point["rates"].values():
            assert len(rate["samples"]) == 2
            assert rate["memory_used"] <= point["memory"]
    (sheet,) = sheets(found)
    assert [row[:3] for row in sheet.rows][::2] == [
        ("cachejoin", "mapped", "5% of R"),
        ("cachejoin", "mapped", "512 KB"),
    ]
    assert sheet.rows[0][-1].endswith("×")
    shown = bench("growth", *small, *FEW, *where, "--resume")
    assert shown.exit_code == 0, shown.output
    points = read_record(record)["points"]
    assert points[:4] == found["points"]
    assert [point["read"] for point in points[4:]] == ["direct"] * 4
    assert not drawn or figure.read_text().startswith("<?xml")


def test_growth_takes_the_two_best_of_the_matrix():
    rates = {"a": [3], "adaptive": [9], "b": [1], "c": [2], "gone": [8]}
    cell = {"workload": "1:1", "exponent": 1.0, "read": "mapped", "share": 0.05}
    cell["rates"] = {name: {"samples": samples} for name, samples in rates.items()}
    known = ["a", "b", "c", "adaptive"]
    assert best_published({"cells": [cell]}, known) == ["adaptive", "a", "c"]
    assert best_published(None, ["cachejoin", "moij"]) == ["cachejoin", "moij", "hybridjoin"]


def test_drift_is_followed_slice_by_slice(tmp_path):
    record, figure = tmp_path / "drift.json", tmp_path / "drift.svg"
    drawn = ["--figures", tmp_path] if has_matplotlib() else []
    small = ["--rows", 30_000, "--repeats", 2, "--read", "direct", *FEW, *drawn]
    shown = bench("drift", *small, "--data", tmp_path, "--output", record)
    assert shown.exit_code == 0, shown.output
    found = read_record(record)
    assert found["grid"]["slice_rows"] == 3_000
    for curve in found["curves"]:
        assert len(curve["rates"]) == len(curve["pages_a_row"]) == 30
        assert [len(run) for run in curve["runs"]] == [30, 30]
        assert len(curve["back_after_each"]) == 2
        assert min(curve["rates"]) > 0
    assert [curve["algorithm"] for curve in found["curves"]] == ["cachejoin", "hybridjoin"]
    (sheet,) = sheets(found)
    assert [row[:2] for row in sheet.rows] == [("cachejoin", "direct"), ("hybridjoin", "direct")]
    assert not drawn or figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("after", "rows"),
    [
        ([90, 90, 90], 10),
        ([89, 95, 20, 30, 91, 92, 93], 50),
        ([10, 95, 95], None),
        ([], None),
    ],
)
def test_the_rate_is_back_when_it_stays(after, rows):
    assert rows_until_back(100, after, 10) == rows


def has_matplotlib() -> bool:
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        return False
    return True
