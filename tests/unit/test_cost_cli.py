"""Planning and calibrating, as a user types it."""

import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import semistream as ss
from semistream.cost.calibration import calibrate
from semistream.cost.calibration.turns import Pace
from semistream.cost.demand import Demand
from semistream.cost.example import example_profile
from semistream.cost.profile import Profile
from semistream.workloads import master_table
from support.cli import call

FEW = (
    "--algorithm",
    "adaptive",
    "--algorithm",
    "hybridjoin",
    "--algorithm",
    "optimised-x-hybridjoin",
)


def plan(master, *arguments):
    given = () if "--profile" in arguments else ("--profile", os.environ["SEMISTREAM_PROFILE"])
    return call("plan", "--master", master, *given, *arguments)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "master"
    return ss.build_master(master_table(40_000), path, key="key", page_bytes="16KB").path


@pytest.fixture(autouse=True)
def profile(tmp_path, monkeypatch):
    path = tmp_path / "profile.json"
    monkeypatch.setenv("SEMISTREAM_PROFILE", str(path))
    example_profile().save(path)
    return path


def test_a_budget_is_planned_in_tables_and_a_chart(master):
    shown = plan(master, "--memory", "512KB", "--skew", 0.8, "--stream-row", 40)
    assert shown.exit_code == 0, shown.output
    assert "with 512 KB, predicted" in shown.output
    assert all(name in shown.output for name in ss.algorithms())  # nothing is cut off at 80
    assert "Zipf's law with exponent 0.8" in shown.output
    assert "█" in shown.output
    assert "▲ 512 KB" in shown.output
    assert max(map(len, shown.output.split("predicted rows/s of")[0].splitlines())) <= 80


def test_json_is_what_the_library_says(master, profile):
    shown = plan(master, "--memory", "512KB", *FEW, "--profile", profile, "--json")
    values = json.loads(shown.stdout)
    given = ss.plan(master, memory="512KB", algorithms=FEW[1::2], profile=profile)
    assert values == json.loads(json.dumps(given.as_dict()))
    assert values["winner"] in FEW


def test_a_rate_is_planned_for_workers(master):
    shown = plan(master, "--rate", "400k", "--cluster", 3, *FEW)
    assert shown.exit_code == 0, shown.output
    assert "least memory of each of 3 workers for 400k rows/s" in shown.output
    assert "to their page's worker" in shown.output
    never = plan(master, "--rate", "1G", *FEW)
    assert "at most" in never.output


def test_a_sample_is_asked_with_its_key(master, monkeypatch):
    asked = []

    def sample_source(source, opened, on):
        asked.append((source, on))
        demand = Demand.zipf(opened.statistics.values, 0.5, opened.pages)
        return SimpleNamespace(
            demand=lambda _: demand,
            row_bytes=30.0,
            columns=3,
            describe=lambda: "as seen",
            as_dict=dict,
        )

    stub = SimpleNamespace(sample_source=sample_source)
    monkeypatch.setitem(sys.modules, "semistream.cost.sampling.sample", stub)
    shown = plan(master, "--memory", "512KB", *FEW, "--sample", "sales.csv", "--on", "id=key")
    assert shown.exit_code == 0, shown.output
    assert asked == [("sales.csv", {"id": "key"})]
    assert "as seen" in shown.output


def test_rows_that_arrive_together_are_a_count(master):
    shown = plan(master, "--memory", "512KB", *FEW, "--batch-rows", "200k", "--json")
    assert json.loads(shown.stdout)["asked"]["batch_rows"] == 200_000


def test_the_winner_is_run(master):
    shown = plan(master, "--memory", "512KB", *FEW, "--measure", "--seconds", 0.05, "--json")
    measured = json.loads(shown.stdout)["measured"]
    assert measured["measured_to_predicted"] == measured["measured"] / measured["predicted"] > 0


def test_where_no_budget_gives_the_rate_nothing_is_measured(master):
    shown = plan(master, "--rate", "1G", *FEW, "--measure", "--json")
    assert shown.exit_code == 0, shown.output
    assert "Nothing was measured: no algorithm is predicted to reach the rate" in shown.stderr
    assert "measured" not in json.loads(shown.stdout)
    assert plan(master, "--rate", "1k", "--measure", "--seconds", 0).exit_code == 2


def test_a_figure_is_drawn(master, tmp_path):
    shown = plan(master, "--rate", "200k", *FEW, "--figure", tmp_path / "new" / "plan.svg")
    assert shown.exit_code == 0, shown.output
    assert "<svg" in (tmp_path / "new" / "plan.svg").read_text()


def test_a_figure_without_matplotlib_names_the_extra(master, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shown = plan(master, "--memory", "512KB", *FEW, "--figure", tmp_path / "plan.svg")
    assert shown.exit_code == 1
    assert "pip install 'semistream[figures]'" in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give exactly one"),
        (("--memory", "1KB"), "the least that works is"),
        (("--memory", "1MB", "--algorithm", "mioj"), "Did you mean 'moij'"),
        (("--memory", "1MB", "--read", "fast"), "read 'fast' is not known"),
        (("--memory", "1MB", "--profile", "none.json"), "none.json: there is no profile"),
        (("--memory", "1MB", "--on", "id"), "--on names the key of a --sample"),
        (("--memory", "1MB", "--sample", "s.csv", "--skew", 0), "--skew beside --sample"),
        (("--memory", "1MB", "--sample", "s.csv", "--absent", 0), "--absent beside --sample"),
        (("--memory", "1MB", "--sample", "s", "--stream-row", 20), "--stream-row beside --sample"),
        (("--memory", "1MB", "--seconds", 2), "--seconds 2 is how long --measure counts"),
        (("--memory", "1MB", "--batch-rows", "many"), "batch_rows='many' is not a count"),
    ],
)
def test_mistakes_are_messages(master, arguments, said):
    shown = plan(master, *arguments)
    assert shown.exit_code == 1
    assert said in shown.output
    assert "Traceback" not in shown.output


def test_calibrate_shows_and_saves_unit_costs(tmp_path, profile, monkeypatch):
    stub = SimpleNamespace(calibrate=lambda _, **__: example_profile())
    monkeypatch.setitem(sys.modules, "semistream.cost.calibration.calibrate", stub)
    profile.unlink()
    shown = call("calibrate", "--quick", "--data", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert all(symbol in shown.output for symbol in ("c_I/O", "c_S", "c_A", "c_E", "c_H", "c_O"))
    assert str(profile) in shown.output
    assert Profile.load(profile).costs == example_profile().costs
    other = tmp_path / "other.json"
    values = json.loads(call("calibrate", "--output", other, "--data", tmp_path, "--json").stdout)
    assert values["path"] == str(other)
    assert values["costs"] == json.loads(other.read_text())["costs"]


@pytest.mark.parametrize("option", ["--output", "--data"])
def test_calibrate_refuses_what_it_cannot_write_before_it_measures(option, tmp_path, monkeypatch):
    monkeypatch.setattr("semistream.cost.planning.commands.calibrated", pytest.fail)
    wrong = tmp_path if option == "--output" else tmp_path / "nowhere"
    failed = call("calibrate", "--output", tmp_path / "p", option, wrong)
    assert failed.exit_code == 1
    assert str(wrong) in failed.output.replace("\n", "")


def test_a_machine_without_a_profile_is_measured_first(master, profile, monkeypatch):
    little = replace(
        calibrate.QUICK,
        rows=80_000,
        trials=calibrate.QUICK.trials[-1:],
        pace=Pace(seconds=0.005, rounds=2, warm=0.01),
        read_seconds=0.02,
        repeats=1,
        largest=1 << 22,
    )
    monkeypatch.setattr(calibrate, "QUICK", little)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    profile.unlink()
    shown = call("plan", "--master", master, "--memory", "512KB", *FEW)
    assert shown.exit_code == 0, shown.output
    assert "measured quickly just now" in shown.output
    assert Profile.load(profile).quick
    assert [*master.parent.iterdir()] == [master]
