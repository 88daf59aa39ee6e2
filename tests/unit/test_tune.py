"""Tuning by the model and by measurement, and rates that are sustained."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_bench_curves import has_matplotlib

import semistream as ss
from benchmarks.engine.workload import Workload
from semistream.algorithms import choose
from semistream.algorithms.published.meshjoin import tuned_buffer
from semistream.cost.demand import Demand
from semistream.cost.example import example_profile
from semistream.cost.predict import predict
from semistream.cost.spread import Spread
from semistream.cost.tuning.figure import draw_tuning
from semistream.cost.tuning.knobs import KNOBS, Axis, knobs_of, repaged, resized
from semistream.cost.tuning.measure import Candidate, Curve, distinct
from semistream.cost.tuning.rows import master_rows_of
from semistream.cost.tuning.show import curve_of
from semistream.cost.tuning.tune import search, tuned, tuned_pages
from semistream.cost.unit_costs import Curve as Costs
from semistream.cost.unit_costs import Fit, RowCost, UnitCosts
from semistream.engine.plan import Task
from semistream.errors import BudgetError, OptionError
from semistream.spec import JoinSpec
from support.cli import call

COSTS = example_profile().costs
FREE = RowCost(0.0)
ROWS, MEMORY = 60_000, 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("masters")


@pytest.fixture(scope="module")
def master(folder):
    return ss.open_master(Workload("1:1", ROWS).prepare(folder, "4KB"), "direct")


@pytest.fixture(scope="module")
def spec(master):
    return JoinSpec.resolve(master, Workload("1:1").stream(1.0).schema, "key", "inner", None, "")


@pytest.fixture(scope="module")
def demand(master):
    return Demand.zipf(master.statistics.values, 1.0, master.pages)


@pytest.fixture
def profile(tmp_path):
    example_profile().save(tmp_path / "profile.json")
    return ["--profile", tmp_path / "profile.json"]


# -- the search -------------------------------------------------------------------------------


@given(st.integers(1, 5000))
def test_the_search_finds_the_top_of_a_hill(top):
    found = search(lambda at: -abs(np.log(at[0] / top)), [Axis(1, 5000, unit=1)])
    assert max(found, key=found.get) == (top,)
    assert len(found) < 150


@given(st.floats(0.05, 0.95))
def test_the_search_finds_a_share(top):
    found = search(lambda at: 1 - (at[0] - top) ** 2, [Axis(0.02, 0.96)])
    assert abs(max(found, key=found.get)[0] - top) < 0.004


@given(st.integers(1, 16), st.integers(1, 300))
def test_the_search_finds_the_top_of_a_surface(k, l):  # noqa: E741
    def rate(at):
        return -(np.log(at[0] / k) ** 2) - np.log(at[1] / l) ** 2

    found = search(rate, [Axis(1, 16, unit=1), Axis(1, 300, unit=1)])
    assert rate(max(found, key=found.get)) > -0.002
    line = sorted(at[1] for at in found if at[0] == max(found, key=found.get)[0])
    assert (line[0], line[-1]) == (1, 300), "the lines through the top are whole"


def test_the_search_passes_over_what_has_no_plan():
    found = search(lambda at: None if at[0] > 40 else float(at[0]), [Axis(1, 1000, unit=1)])
    assert max(found, key=found.get) == (40,)
    assert search(lambda _: None, [Axis(1, 10, unit=1)]) == {}


# -- by the model -----------------------------------------------------------------------------


def test_meshjoins_optimum_is_the_closed_form_where_only_reads_cost(spec, demand):
    q, per_byte = 24 << 10, 1e-9
    sizes = (0.0, float(1 << 24))
    line = Costs(sizes, tuple((q + size) * per_byte for size in sizes))
    only_reads = UnitCosts({"direct": line}, FREE, FREE, FREE, FREE, FREE, line, {})
    found = tuned("meshjoin", spec, MEMORY, demand, only_reads)
    task = Task.of(spec, MEMORY, None)
    # What buffer and window have together, but for the window's 8 bytes a page of the master.
    divided = MEMORY - sum(task.fixed(0).values()) - 8 * demand.pages
    wanted = tuned_buffer(divided, q)
    assert found.options["buffer"] == pytest.approx(wanted, abs=task.page_bytes)
    for point in found.curve:  # rate ∝ (M − b)·b/(q + b)
        b = point.options["buffer"]
        shape = (divided - b) * b / (q + b)
        best = (divided - wanted) * wanted / (q + wanted)
        assert point.rate / found.best.rate == pytest.approx(shape / best, rel=0.002)


def test_meshjoin_has_the_papers_closed_form_among_its_candidates(spec, demand):
    found = tuned("meshjoin", spec, MEMORY, demand, COSTS)
    pages = choose("meshjoin", spec, MEMORY, None, {})[2].settings["buffer_pages"]
    same = [p for p in found.curve if p.options["buffer"] == pages * 4096]
    assert [p.rate for p in same] == [found.untuned.rate]
    assert 0 <= found.loss(found.untuned) < 1


@pytest.mark.parametrize("name", KNOBS)
def test_no_choice_is_better_than_the_tuned_one(name, spec, demand):
    found = tuned(name, spec, MEMORY, demand, COSTS)
    assert set(found.options) == {knob.option for knob in knobs_of(name)}
    assert found.prediction.rate == found.best.rate == max(p.rate for p in found.curve)
    again = predict(name, spec, MEMORY, demand, COSTS, options=dict(found.options))
    assert again.plan == found.prediction.plan
    for option in found.options:
        line = found.along(option)
        values = [point.options[option] for point in line]
        assert len(values) > 3
        assert values == sorted(set(values))
        assert found.best in line


def test_a_skewed_stream_wants_a_larger_cache(spec, master):
    shares = []
    for exponent in (0.0, 0.8, 1.2):
        demand = Demand.zipf(master.statistics.values, exponent, master.pages)
        shares.append(tuned("cachejoin", spec, MEMORY, demand, COSTS).options["cache"])
    assert shares == sorted(shares)
    assert shares[0] == 0.02 < shares[-1]


def test_what_has_no_knob_and_what_does_not_fit_are_said(spec, demand):
    with pytest.raises(OptionError, match="of the memory's split these have: meshjoin"):
        tuned("moij", spec, MEMORY, demand, COSTS)
    with pytest.raises(BudgetError, match="the least that works"):
        tuned("cachejoin", spec, 9000, demand, COSTS)


# -- the page size ----------------------------------------------------------------------------


def test_statistics_at_other_page_sizes_are_those_of_a_build(master, folder):
    for size, name in ((16 << 10, "16KB"), (64 << 10, "64KB")):
        built = ss.open_master(Workload("1:1", ROWS).prepare(folder, name), "direct")
        expected = resized(master, size).statistics
        assert expected.pages == pytest.approx(built.pages, rel=0.06)
        assert expected.largest_part == built.statistics.largest_part
        assert resized(built, 4096).pages == pytest.approx(master.pages, rel=0.06)


def test_a_repaged_demand_asks_for_the_same(demand):
    for pages in (demand.pages // 7, demand.pages, demand.pages * 3):
        shares = repaged(demand, pages).page_shares()
        assert len(shares) == pages
        assert shares.sum() == pytest.approx(1.0)
    # Of a page of twice the size, at most as much is asked as of its hottest two halves.
    assert repaged(demand, demand.pages // 2).page_shares().max() >= demand.page_shares().max()


def test_the_page_size_is_a_power_of_two(spec, demand):
    found = tuned_pages("hybridjoin", spec, MEMORY, demand, COSTS)
    sizes = [point.options["page_bytes"] for point in found.along("page_bytes")]
    assert sizes[:4] == [4096, 16384, 32768, 65536]  # 4 KB: as the master is
    at_4k = next(p for p in found.curve if p.options["page_bytes"] == 4096)
    assert at_4k.rate == pytest.approx(found.untuned.rate)
    assert found.options["page_bytes"] > 4096


# -- by measurement ---------------------------------------------------------------------------


def test_the_loss_is_taken_after_the_best_is_known():
    curve = Curve(({}, {"l": 2}), ([90, 80], [100, 100]), 1, 0, ([98, 99], [100, 100]))
    assert curve.shares[0] == Spread(pytest.approx(0.85), 0.8, 0.9)
    assert curve.loss == pytest.approx((0.015, 0.01, 0.02))
    assert Curve(({},), ([5],), 0, 0, ([5], [5])).loss == (0, 0, 0)


def test_equal_plans_are_measured_once(master, spec):
    options = ({"cache": 0.5}, {"cache": 0.3}, {})
    some = [Candidate(o, master, o, untuned=not o) for o in options]
    left = distinct("cachejoin", MEMORY, some, spec.stream)
    assert [(c.options, c.untuned) for c in left] == [
        ({"cache": 0.5}, True),
        ({"cache": 0.3}, False),
    ]


def test_a_masters_rows_are_what_it_was_built_from(tmp_path):
    table = pa.table({"who": [f"n{i % 50}" for i in range(200)], "n": range(200)})
    master = ss.build_master(table, tmp_path / "m", key="who", page_bytes="4KB")
    for read in ("mapped", "direct"):
        found = master_rows_of(ss.open_master(master.path, read)).read_all()
        assert found.sort_by("n").to_pylist() == table.to_pylist()


def test_tune_shows_both_curves(master, profile, tmp_path):
    where = ["--master", master.path, "--memory", "1MB", "--algorithm", "meshjoin"]
    plain = call("tune", *profile, *where, "--no-measure")
    assert plain.exit_code == 0, plain.output
    assert "by the model" in plain.output
    assert "closed form" in plain.output
    assert "measured" not in plain.output.replace("c_I/O is measured", "")
    drawn = ["--figure", tmp_path / "t.svg"] if has_matplotlib() else []
    few = ["--seconds", 0.01, "--rounds", 2, "--points", 3]
    shown = call("tune", *profile, *where, *few, *drawn)
    assert shown.exit_code == 0, shown.output
    assert "the model's choice" in shown.output
    assert not drawn or (tmp_path / "t.svg").read_text().startswith("<?xml")


def test_tune_gives_a_record(master, profile):
    few = ["--seconds", 0.01, "--rounds", 2, "--points", 3, "--algorithm", "tuned-x-hybridjoin"]
    shown = call("tune", *profile, "--master", master.path, "--memory", "1MB", *few, "--json")
    (cell,) = json.loads(shown.stdout)["cells"]
    assert cell["knobs"] == ["k", "l"]
    run = cell["measured"]
    assert run["points"][run["untuned"]]["options"] == {}
    assert all(len(point["samples"]) == 2 for point in run["points"])
    for option in cell["knobs"]:
        values = curve_of(cell, option)
        assert 3 <= len(values) <= 6
        assert max(v.model for v in values) <= 1.0001
    best = max(run["points"], key=lambda point: np.median(point["samples"]))
    assert best == run["points"][run["optimum"]]


def test_tune_predicts_for_joins_as_young_as_those_it_measures(master, spec, demand, tmp_path):
    costs = replace(COSTS, fits={"cachejoin direct": Fit(step=8e-5, judge=1e-3)})
    replace(example_profile(), costs=costs).save(tmp_path / "profile.json")
    few = ["--seconds", 0.01, "--rounds", 2, "--points", 3]
    where = ["--profile", tmp_path / "profile.json", "--master", master.path, "--memory", "1MB"]
    (cell,) = json.loads(call("tune", *where, *few, "--json").stdout)["cells"]
    assert cell["batch"] == 65_536
    for point in cell["measured"]["points"]:
        old, young = (
            predict("cachejoin", spec, MEMORY, demand, costs, options=point["options"], **age)
            for age in ({}, {"age": cell["age"], "batch": cell["batch"]})
        )
        assert point["predicted"] == pytest.approx(young.rate, rel=0.002)
        assert young.rate < 0.98 * old.rate
    plain = call("tune", *where, "--no-measure", "--json")
    assert json.loads(plain.stdout)["cells"][0]["model"]["rate"] > cell["model"]["rate"]


def test_tune_builds_masters_for_page_sizes_and_removes_them(master, profile, tmp_path):
    few = ["--seconds", 0.005, "--rounds", 1, "--algorithm", "hybridjoin", "--pages"]
    where = ["--master", master.path, "--memory", "1MB", "--scratch", tmp_path]
    shown = call("tune", *profile, *where, *few, "--json")
    assert shown.exit_code == 0, shown.output
    (cell,) = json.loads(shown.stdout[shown.stdout.index("{") :])["cells"]
    sizes = [point["options"]["page_bytes"] for point in cell["measured"]["points"]]
    assert sizes[:3] == [4096, 16384, 32768]
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_tune_says_what_it_cannot_tune(master, profile, tmp_path):
    failed = call(
        "tune", *profile, "--master", master.path, "--memory", "1MB", "--algorithm", "moij"
    )
    assert failed.exit_code == 1
    assert "--pages" in failed.output
    for memory, why in (("64MB", "nothing is left to tune"), ("9KB", "the least that works")):
        for how in ([], ["--json"], ["--figure", tmp_path / "none.svg"]):
            failed = call("tune", *profile, "--master", master.path, "--memory", memory, *how)
            assert failed.exit_code == 1
            assert why in failed.output
            assert not failed.stdout
    assert not (tmp_path / "none.svg").exists()
    if has_matplotlib():
        with pytest.raises(OptionError, match="nothing to draw"):
            draw_tuning({"cells": [{"refused": "too small"}]}, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--on", "item=key"], "--on names the key of a --sample"),
        (["--sample", "s.csv", "--skew", 1], "--skew beside --sample"),
    ],
)
def test_tune_refuses_what_it_would_ignore(master, profile, options, said):
    failed = call("tune", *profile, "--master", master.path, "--memory", "1MB", *options)
    assert failed.exit_code == 1
    assert said in failed.output


def test_a_profile_of_another_machine_is_told(master, tmp_path):
    other = replace(example_profile(), machine=example_profile().machine | {"cores": 512})
    other.save(tmp_path / "other.json")
    where = ["--profile", tmp_path / "other.json", "--master", master.path, "--memory", "1MB"]
    shown = call("tune", *where, "--no-measure", "--json")
    assert shown.exit_code == 0, shown.output
    assert "may not hold here: cores was 512" in shown.stderr
    assert json.loads(shown.stdout)["cells"]


def test_tune_takes_a_sample_of_the_stream(master, profile, tmp_path):
    rows = pa.Table.from_batches(Workload("1:1", ROWS).stream(0.7).batches(40_000))
    pq.write_table(rows.rename_columns(["item", "sale", "n"]), tmp_path / "stream.parquet")
    where = ["--master", master.path, "--memory", "1MB", "--algorithm", "ssij", "--no-measure"]
    sample = ["--sample", tmp_path / "stream.parquet", "--on", "item=key"]
    shown = call("tune", *profile, *where, *sample)
    assert shown.exit_code == 0, shown.output
    assert "as sampled" in shown.output


def test_tune_leaves_absent_rows_out_of_both_curves(master, profile, tmp_path):
    stream = replace(Workload("1:1", ROWS).stream(0.7), absent=0.3)
    pq.write_table(pa.Table.from_batches(stream.batches(40_000)), tmp_path / "stream.parquet")
    where = ["--master", master.path, "--memory", "1MB", "--algorithm", "ssij"]
    where += ["--sample", tmp_path / "stream.parquet", "--seconds", 0.005, "--rounds", 1]
    shown = call("tune", *profile, *where, "--points", 1)
    assert shown.exit_code == 0, shown.output
    assert "Predicted and measured without the 3" in shown.output
    (cell,) = json.loads(call("tune", *profile, *where, "--points", 1, "--json").stdout)["cells"]
    whole = call("tune", *profile, *where, "--no-measure", "--json")
    assert cell["absent_left_out"] == pytest.approx(0.3, abs=0.02)
    assert json.loads(whole.stdout)["cells"][0]["absent_left_out"] == 0
    assert json.loads(whole.stdout)["cells"][0]["model"]["rate"] != cell["model"]["rate"]
