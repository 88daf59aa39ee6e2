"""Predictions beside measurements: what a record holds, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.engine.model import ModelGrid, measure_model, predicted_again, run_offs
from benchmarks.engine.model_commands import _profile
from benchmarks.engine.model_tables import error, named, quantile
from benchmarks.figure import draw
from benchmarks.store import read_record, write_record
from benchmarks.tables import sheets
from semistream.cost.calibration.turns import Pace
from semistream.cost.example import example_profile
from semistream.cost.tuning.record import compact
from semistream.cost.unit_costs import Curve

PROFILE = example_profile()
GRID = ModelGrid(("hybridjoin", "adaptive"), (60_000,), (0.1,), (1.0,), pace=Pace(0.01, 2, 0.02))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (record,) = measure_model(GRID, folder, PROFILE, lambda _: None)
    return record, folder


def test_a_cell_has_what_was_predicted_and_what_was_measured(measured):
    record, _ = measured
    (cell,) = record["cells"]
    assert set(cell["rates"]) == set(GRID.algorithms)
    assert set(cell["drift"]) == {"direct", "direct, 1 ahead", "direct, 3 ahead"}
    for rate in cell["rates"].values():
        assert 2 <= len(rate["samples"]) <= 4
        assert min(rate["samples"]) * 0.99 <= rate["rate"] <= max(rate["samples"]) * 1.01
        assert rate["steady"] > 0
        assert rate["predicted"] > 0
        assert rate["as_calibrated"] > 0
        assert rate["planned"] > 0
        assert rate["age"] > 0
    hybrid = cell["rates"]["hybridjoin"]
    assert hybrid["predicted_rows_a_page"] == pytest.approx(hybrid["rows_a_page"], rel=0.5)


def test_a_record_is_gone_on_with(measured):
    record, folder = measured
    grid = replace(GRID, shares=(*GRID.shares, 0.2))
    before = {**record, "cells": [*record["cells"]]}
    (longer,) = measure_model(grid, folder, PROFILE, lambda _: None, before)
    assert [cell["share"] for cell in longer["cells"]] == [0.1, 0.2]
    assert longer["cells"][0] == record["cells"][0]


def test_the_command_adds_to_a_record(measured, tmp_path):
    record, folder = measured
    path = tmp_path / "model.json"
    write_record(record, path)
    for option in ("--run-off", "--again"):
        call = ["model", option, "--output", str(path), "--json"]
        done = CliRunner().invoke(app, [*call, "--data", str(folder)])
        assert done.exit_code == 0, done.output
        assert read_record(path)["cells"][0]["rates"].keys() == record["cells"][0]["rates"].keys()


def test_a_slower_disk_makes_for_slower_predictions(measured):
    record, folder = measured
    (cell,) = record["cells"]
    slow = {**record, "cells": [{**cell, "drift": dict.fromkeys(cell["drift"], 2.0)}]}
    (again,) = predicted_again(slow, folder, PROFILE.costs)["cells"]
    hybrid = again["rates"]["hybridjoin"]
    assert hybrid["predicted"] < 0.8 * hybrid["as_calibrated"]
    assert PROFILE.costs.drift(PROFILE.costs.standards) == dict.fromkeys(cell["drift"], 1.0)


def test_costs_of_older_models_are_not_predicted_from(measured, tmp_path):
    record, _ = measured
    path = tmp_path / "model.json"
    write_record({**record, "profile": {**record["profile"], "format": 1}}, path)
    done = CliRunner().invoke(app, ["model", "--again", "--output", str(path)])
    assert done.exit_code == 1
    assert "older models; measure anew" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--again"], "say which one with --output"),
        (["--run-off"], "say which one with --output"),
        (["--resume"], "say which one with --output"),
        (["--algorithm", "mine"], "'mine' has no cost model"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(options, said, monkeypatch):
    monkeypatch.setattr("benchmarks.engine.model_commands.calibrate", pytest.fail)
    done = CliRunner().invoke(app, ["model", *options])
    assert done.exit_code == 1
    assert said in done.stderr


def test_a_profile_of_another_machine_is_told(tmp_path, capsys):
    other = replace(PROFILE, machine=PROFILE.machine | {"cores": 512})
    other.save(tmp_path / "other.json")
    assert _profile(tmp_path / "other.json", quick=True, data=tmp_path).costs == PROFILE.costs
    assert "may not hold here: cores was 512" in capsys.readouterr().err


def test_predictions_are_made_anew_from_the_same_costs(measured):
    record, folder = measured
    assert predicted_again(record, folder, PROFILE.costs)["cells"] == record["cells"]
    fast = replace(PROFILE.costs, c_io=dict.fromkeys(PROFILE.costs.c_io, Curve((1.0,), (0.0,))))
    (cell,) = predicted_again(record, folder, fast)["cells"]
    before = record["cells"][0]["rates"]["hybridjoin"]
    assert cell["rates"]["hybridjoin"]["predicted"] > before["predicted"]
    assert cell["rates"]["hybridjoin"]["rate"] == before["rate"]


def test_tables_and_a_figure(measured, tmp_path):
    pytest.importorskip("matplotlib")
    record, _ = measured
    errors, winners, rates = sheets(record)
    assert [row[0] for row in errors.rows] == ["hybridjoin", "adaptive", "all"]
    assert winners.rows[0][2] in {"0 of 1", "1 of 1"}
    assert rates.rows[0][:3] == ("0.06M", "10%", "1")
    draw(record, tmp_path / "model.svg")
    assert "<svg" in (tmp_path / "model.svg").read_text()
    assert '"kind": "model"' in compact(record)


def cell(**rates):
    return {
        "rates": {
            name: {"predicted": 1 / predicted, "planned": predicted, "steady": steady}
            for name, (predicted, steady) in rates.items()
        }
    }


def test_the_winner_is_the_one_with_the_highest_prediction():
    some = cell(adaptive=(100, 90), moij=(70, 50), meshjoin=(60, 54))
    assert named(some) == ("adaptive", "adaptive", 1.0)
    pick = named(some, without="adaptive")
    assert (pick.chosen, pick.best, pick.near) == ("moij", "meshjoin", False)
    assert named(some, by="predicted").chosen == "meshjoin"
    assert named(cell(a=(2, 96), b=(1, 100))).near


def test_those_that_are_about_as_fast_have_a_run_off(measured):
    record, folder = measured
    (cell,) = record["cells"]
    told = {"hybridjoin": (2, 100), "adaptive": (1, 104)}
    rates = {name: {"planned": p, "predicted": p, "steady": s} for name, (p, s) in told.items()}
    tied = {**cell, "rates": rates}
    tied.pop("run_off", None)
    (again,) = run_offs({**record, "cells": [tied]}, folder, lambda _: None)
    (found,) = again["cells"]
    speeds = {name: rate["steady"] for name, rate in found["run_off"].items()}
    assert set(speeds) == {"hybridjoin", "adaptive"}
    assert named(found).share == speeds["hybridjoin"] / max(speeds.values())
    assert list(run_offs(again, folder, lambda _: None)) == []


def test_errors_are_relative():
    assert error({"predicted": 80, "steady": 100}) == pytest.approx(0.2)
    assert error({"as_calibrated": 50, "steady": 100}, "as_calibrated") == pytest.approx(0.5)
    assert quantile(list(range(1, 11)), 0.9) == 9
