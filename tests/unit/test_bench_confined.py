"""Measuring in a memory cgroup: the limit is there, the page cache is not."""

import pytest

from benchmarks.engine import cgroup
from benchmarks.engine.cgroup import NoGroupError, memory_group
from benchmarks.engine.confined import drop_cached
from benchmarks.harness.memory import resident_bytes
from benchmarks.harness.record import read_record
from support.cli import bench, sheets

ROWS = 60_000


@pytest.fixture
def group():
    try:
        with memory_group("semistream-test") as made:
            yield made
    except NoGroupError as error:
        pytest.skip(str(error))


def test_a_group_has_its_limit_and_goes_away(group):
    group.limit(64 << 20)
    assert int((group.path / cgroup._LIMIT[group.version]).read_text()) == 64 << 20
    assert group.members.read_text() == ""


def test_pages_are_dropped(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    assert resident_bytes(file) == 1 << 20
    assert drop_cached(file) <= 1 << 20


def test_without_groups_there_is_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "_own_group", lambda: (tmp_path / "nothing", 1))
    shown = bench("confined", "--rows", ROWS, "--data", tmp_path)
    assert shown.exit_code == 1
    assert "no memory cgroup can be made" in shown.output
    monkeypatch.setattr(cgroup, "_own_group", lambda: (tmp_path, 2))
    shown = bench("confined", "--rows", ROWS, "--data", tmp_path)
    assert "does not let groups below it limit their memory" in shown.output
    assert [path.name for path in tmp_path.iterdir()] == ["confined"]


def test_rates_are_measured_inside(group, tmp_path):
    record = tmp_path / "confined.json"
    small = ["--rows", ROWS, "--share", 0.25, "--rounds", 1, "--seconds", 0.02]
    only = ["--algorithm", "hybridjoin", "--algorithm", "cachejoin"]
    shown = bench("confined", *small, *only, "--data", tmp_path, "--output", record)
    if "can't be dropped" in shown.output:
        pytest.skip("this file system keeps its pages")
    assert shown.exit_code == 0, shown.output
    found = read_record(record)
    (setting,) = found["settings"]
    for runs in setting["rates"].values():
        (run,) = runs
        assert run["limit"] == run["own"] + setting["memory"] + found["grid"]["slack"]
        assert run["sample"] > 0
        assert run["left_cached"] <= found["pages_bytes"] / 100


def test_a_process_that_was_ended_is_shown():
    grid = {"rows": 5, "exponent": 1.0, "slack": 1 << 20, "algorithms": ["cachejoin", "moij"]}
    runs = [{"sample": 2000, "resident": 5}, {"ended": "exit code -9"}]
    whole = [{"sample": 1000, "resident": 2}, {"sample": 4000, "resident": 2}]
    setting = {"share": 0.05, "memory": 9, "rates": {"cachejoin": runs, "moij": whole}}
    record = {"kind": "confined", "grid": grid, "pages_bytes": 10, "settings": [setting]}
    (sheet,) = sheets(record)
    assert sheet.rows == (
        ("cachejoin", "2 (2–2) (1 ended)"),
        ("moij", "2 (1–4)"),
        ("cachejoin against", "–"),
    )
    assert sheet.note.endswith("at most 50% of the pages")
