"""Calibration: what is measured is plausible, what is fitted is found again, files are checked."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from semistream import build_master
from semistream.algorithms import _REGISTRY, algorithms, choose
from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.cost.calibration.calibrate import Effort, calibrate
from semistream.cost.calibration.runs import (
    Observed,
    Trial,
    counted,
    fitted,
    side_by_side,
)
from semistream.cost.calibration.turns import Pace
from semistream.cost.demand import Demand
from semistream.cost.example import example_profile
from semistream.cost.models import Setting, kind_of
from semistream.cost.predict import predicted
from semistream.cost.profile import Profile, default_path
from semistream.cost.unit_costs import Curve, Fit, way
from semistream.errors import OptionError
from semistream.master import open_master
from semistream.spec import JoinSpec
from semistream.system.machine import describe
from semistream.workloads import Stream, Zipf, master_table

TINY = Effort(
    rows=90_000,
    trials=(Trial(0.08, 1.0, "mapped"), Trial(0.08, 1.0, "direct")),
    pace=Pace(seconds=0.01, rounds=2, warm=0.02),
    read_seconds=0.05,
    repeats=2,
    largest=1 << 20,
)


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    said = []
    folder = tmp_path_factory.mktemp("calibrate")
    with pytest.MonkeyPatch.context() as patch:  # an algorithm of someone's own has no model
        patch.setitem(_REGISTRY, "mine", type("Mine", (Hybridjoin,), {"name": "mine"}))
        found = calibrate(folder, effort=TINY, say=lambda *step: said.append(step))
    assert not list(folder.iterdir())
    assert [done for _, done, _ in said] == list(range(said[0][2]))
    return found


def test_every_loop_is_measured_for_both_ways_to_read(profile):
    loops = {f"{name} {read}" for name in algorithms() for read in ("mapped", "direct")}
    assert set(profile.costs.fits) == loops | {
        "at once mapped",
        "resident mapped",
        "resident direct",
    }


def test_unit_costs_are_those_of_a_machine(profile):
    costs = profile.costs
    assert set(costs.c_io) == {way(read, n) for read in ("mapped", "direct") for n in (0, 1, 3)}
    assert costs.c_io["direct"](131072) > costs.c_io["mapped"](131072)
    for curve in costs.c_io.values():
        assert sorted(curve.value) == list(curve.value)
    for cost in (costs.c_S, costs.c_A, costs.c_E, costs.c_H, costs.c_O):
        assert 1e-9 < cost(3, 20) < 1e-4
    assert all(fit.step >= 0 and fit.rows >= 0 for fit in costs.fits.values())


def test_a_profile_is_kept_whole(profile, tmp_path):
    path = tmp_path / "some" / "profile.json"
    profile.save(path)
    again = Profile.load(path)
    assert again.costs.as_dict() == profile.costs.as_dict()
    assert (again.machine, again.quick) == (json.loads(json.dumps(profile.machine)), False)
    assert [file.name for file in path.parent.iterdir()] == ["profile.json"]


def test_a_profile_goes_to_other_processes(profile):
    again = pickle.loads(pickle.dumps(profile))  # noqa: S301
    assert again.costs.as_dict() == profile.costs.as_dict()


def test_a_foreign_or_stale_profile_is_noticed(profile):
    assert profile.doubts() == []
    foreign = replace(profile, machine={**profile.machine, "cpu": "Z80", "cores": 64})
    assert len(foreign.doubts()) == 2
    assert "cores was 64" in foreign.doubts()[1]
    later = datetime.now(UTC) + timedelta(days=100)
    assert "days old" in profile.doubts(later)[0]


def test_patches_and_a_little_memory_are_no_reason_to_doubt_a_profile(profile):
    def doubts(**machine):
        return replace(profile, machine={**profile.machine, **machine}).doubts()

    def patched(version):
        return ".".join([*version.split(".")[:2], "999"])

    memory, python = profile.machine["memory_bytes"], profile.machine["python"]
    versions = profile.machine["versions"]
    newer = {name: patched(version) for name, version in versions.items()}
    assert doubts(memory_bytes=int(1.03 * memory), python=patched(python), versions=newer) == []
    assert "memory_bytes was" in doubts(memory_bytes=int(1.1 * memory))[0]
    assert "python was 2.7.18" in doubts(python="2.7.18")[0]
    assert "'numpy': '1.0.0'" in doubts(versions=versions | {"numpy": "1.0.0"})[0]
    assert len(doubts(memory_bytes=None, versions=None)) == 2


@pytest.mark.parametrize(
    "content", ["", "{}", '{"semistream_profile": 99}', '{"semistream_profile": 1}', "[1]"]
)
def test_what_is_no_profile_is_refused(content, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(OptionError, match="semistream calibrate"):
        Profile.load(path)


def test_a_profile_without_its_machine_is_none(profile, tmp_path):
    path = tmp_path / "profile.json"
    replace(profile, machine={"cpu": "Z80"}).save(path)
    with pytest.raises(OptionError, match="date"):
        Profile.load(path)


def test_a_profile_that_cannot_be_written_leaves_nothing(profile, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        profile.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_profile_lies_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SEMISTREAM_PROFILE", str(tmp_path / "mine.json"))
    assert default_path() == tmp_path / "mine.json"
    monkeypatch.delenv("SEMISTREAM_PROFILE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "semistream" / "profile.json"


def made_up_runs(name, master, true):
    """Give runs as a model with such factors makes them, each on a disk of its own speed."""
    spec = JoinSpec.resolve(master, Stream(Zipf(10)).schema, "key", "inner", None, "")
    costs = replace(example_profile().costs, fits={f"{name} direct": true})
    demand, rows, runs = Demand.zipf(100_000, 1.0, master.pages), 1_000_000, []
    for share, drift in ((0.02, 1.0), (0.1, 1.5), (0.3, 0.8)):
        _, task, plan = choose(name, spec, int(share * master.statistics.bytes), None, {})
        setting = Setting(task, plan, demand, Fit(), age=300_000)
        drifts = dict.fromkeys(costs.standards, drift)
        found = predicted(name, setting, costs.drifted(drifts))
        runs.append(
            Observed(
                kind=kind_of(plan),
                trial=Trial(share, 1.0, "direct"),
                seconds=rows / found.rate,
                answered=rows,
                pages=int(rows * found.loop.pages_a_row),
                hits=found.loop.hit_rate,
                setting=setting,
                drift=drifts,
            )
        )
    return runs, costs


def test_how_much_loops_wait_for_each_other_is_found_again(tmp_path):
    build_master(master_table(100_000), tmp_path, key="key", page_bytes="32KB")
    node = Fit(step=1e-4, rows=2.0, hits=2.0, judge=2.5e-4)
    true = replace(node, fill=0.9, cached=0.6, beside=1.4)
    runs, costs = made_up_runs("pcsrj", open_master(tmp_path, "direct"), true)
    found = side_by_side(runs, costs, counted(runs), node)
    assert found.beside == pytest.approx(true.beside, rel=0.05)
    assert (found.step, found.judge) == (node.step, node.judge)


@pytest.mark.parametrize("name", ["hybridjoin", "cachejoin", "moij", "adaptive"])
def test_what_went_into_a_run_is_found_again(name, tmp_path):
    """Runs that a model made have the factors of that model."""
    build_master(master_table(100_000), tmp_path, key="key", page_bytes="32KB")
    master = open_master(tmp_path, "direct")
    true = Fit(step=1e-4, rows=2.0, hits=2.0, fill=0.8, judge=2.5e-4, cached=0.6)
    runs, costs = made_up_runs(name, master, true)
    fit = fitted(runs, costs, counted(runs))
    assert fit.fill == pytest.approx(true.fill, rel=0.03)
    assert fit.rows == pytest.approx(true.rows, rel=0.1)
    if name != "adaptive":  # its pages are matched while others are read: a step may not show
        assert fit.step == pytest.approx(true.step, rel=0.1)
    if name in {"moij", "cachejoin"}:
        assert fit.judge == pytest.approx(true.judge, rel=0.1)
    if name not in {"moij", "hybridjoin"}:
        assert fit.cached == pytest.approx(true.cached, rel=0.05)


def test_a_curve_goes_on_as_it_ends():
    curve = Curve((1.0, 2.0), (10.0, 11.0))
    assert [curve(at) for at in (0.5, 1.5, 4)] == [10, 10.5, 13]


def test_the_machine_is_described():
    assert {"cpu", "cores", "memory_bytes", "python", "versions", "date"} <= set(describe())
