"""Planning and tuning, as a user types it."""

import json

import pytest

import semistream as ss
from semistream.planning import curve, view
from semistream.planning.machine import Machine
from semistream.workloads import master_table
from support.cli import call
from support.simulations import short_simulations


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "master"
    ss.build_master(master_table(20_000), path, key="key", page_bytes="16KB")
    return path


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "_MOST_VALUES", 5_000)
    monkeypatch.setattr(curve, "_POINTS", 2)
    path = tmp_path / "machine.json"
    path.write_text(Machine().dump())
    monkeypatch.setattr("semistream.planning.measure.machine_at_hand", lambda *_, **__: Machine())
    with short_simulations():
        yield path


def test_a_plan_begins_with_the_memory_and_shows_both_ways(master, machine):
    shown = call(
        "plan", "--master", master, "--memory", "512KB", "--read", "direct", "--skew", 0.8,
        "--executors", 2, "--tasks", 3, "--machine", machine,
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    first, *rest = shown.stdout.splitlines()
    assert first.startswith("memory='512KB' for enrich (2 executors of 3 tasks")
    assert "rows/s predicted" in first
    assert any(line.startswith("Join: one thread") for line in rest)
    assert "Zipf's law with exponent 0.8" in shown.stdout
    assert str(machine) in shown.stdout


def test_json_is_what_the_library_says(master, machine):
    shown = call("plan", "--master", master, "--memory", "1MB", "--machine", machine, "--json")
    values = json.loads(shown.stdout)
    planning = ss.plan(master, memory="1MB", machine=machine)
    assert values == json.loads(json.dumps(planning.as_dict()))
    assert values["memory"] == planning.memory >= values["enrich"]["least"]


def test_what_if_the_disk_were_another(master):
    def rate(*costs):
        options = [text for cost in costs for text in ("--cost", cost)]
        shown = call(
            "plan", "--master", master, "--memory", "256KB", "--read", "direct", "--json", *options
        )
        return json.loads(shown.stdout)["join"]["chosen"]["rate"]

    assert rate("read=0.01", "in_flight=1") < rate() / 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--memory", "1MB", "--on", "key"), "--on names the key of a --sample"),
        (("--sample", "x.csv", "--skew", 1), "--skew beside --sample"),
        (("--cost", "read"), "give a unit cost as name=number"),
        (("--cost", "reed=1"), "Did you mean 'read'"),
        (("--memory", "1MB", "--rate", "5k"), "give one of them"),
        (("--memory", "2KB"), "the least that works"),
    ],
)
def test_what_makes_no_sense_is_said(master, arguments, message):
    shown = call("plan", "--master", master, *arguments)
    assert shown.exit_code == 1
    assert message in " ".join(shown.output.split())


def test_tuning_lists_settings_by_rate(master, machine):
    options = ("--master", master, "--memory", "512KB", "--machine", machine)
    shown = call("tune", *options, "--points", 3)
    assert shown.exit_code == 0, shown.output
    first, *settings = shown.stdout.splitlines()
    assert first.endswith("for cachejoin with 512 KB")
    assert "100.0% of the best rate" in settings[0]
    assert len(settings) == 3
    found = json.loads(call("tune", *options, "--points", 3, "--json").stdout)
    rates = [setting["point"]["rate"] for setting in found]
    assert rates == sorted(rates, reverse=True)
    none = call("tune", *options, "--algorithm", "hybridjoin")
    assert "nothing to tune" in none.output
