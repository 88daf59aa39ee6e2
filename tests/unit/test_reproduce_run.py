"""Experiments run in small: every kind, kept, resumed, reported on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from test_reproduce_weather import report
from typer.testing import CliRunner

from benchmarks.harness.rounds import Pace
from papers.__main__ import app
from papers.judge.figure import caption
from papers.judge.verdict import UNKNOWN
from papers.report import read_findings
from papers.run import runner as running
from papers.run.cells import groups
from papers.run.runner import loaded, measured, path_of, with_points
from papers.run.scale import SCALES, scale_of
from papers.run.sources import prepare
from papers.run.weather import FOLDER
from semistream.errors import OptionError
from support.papers import EXPERIMENTS, MACHINE, TINY
from support.simulations import short_simulations


def small(name: str):
    """Give an experiment with its first and last value alone."""
    experiment = EXPERIMENTS[name]
    return replace(experiment, values=(experiment.values[0], experiment.values[-1]))


def run(name, output):
    *_, record = measured(name, small(name), TINY, output, MACHINE, lambda _: None)
    return with_points(record)


pytestmark = pytest.mark.xdist_group("reproduced")  # what takes long is done once, in one process

KINDS = (
    "x-hybridjoin/figure-3b",
    "meshjoin/figure-8",
    "meshjoin/figure-9",
    "x-hybridjoin/figure-4",
    "tuned-x-hybridjoin/figure-5b",
    "moij/figure-6b",
    "moij/figure-7d",
    "moij/figure-7e",
)


@pytest.fixture(scope="module", autouse=True)
def short():
    """Predict in no time: how well is seen where planning is tested."""
    with short_simulations():
        yield


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduced")
    for name in KINDS:
        run(name, folder)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_every_line_has_a_number_or_says_why_not(output, name):
    record, experiment = loaded(output, name), small(name)
    assert [point["x"] for point in record["points"]] == list(experiment.values)
    for point in record["points"]:
        assert set(point["runs"]) == set(experiment.series)
        for one in point["runs"].values():
            assert one.get("value", 0) > 0 or one["refused"]
    if experiment.kind != "least":  # on a busy machine no budget may give the rate
        assert any("value" in one for one in record["points"][-1]["runs"].values())


def test_a_record_has_every_sample_and_the_machine(output):
    record = json.loads(path_of(output, "x-hybridjoin/figure-3b").read_text())
    assert record["machine"]["cpu"]
    assert record["factor"] == pytest.approx(0.03)
    for one in record["runs"]:
        assert len(one["samples"]) >= TINY.pace.rounds
        assert one["predicted"] > 0


def test_a_run_goes_on_where_it_stopped(output, monkeypatch):
    name = "meshjoin/figure-9"
    before = path_of(output, name).read_bytes()
    monkeypatch.setattr(running, "_group", lambda *_: pytest.fail("it was measured already"))
    assert run(name, output)["points"]
    assert path_of(output, name).read_bytes() == before


def test_what_was_measured_in_another_way_is_measured_anew(output):
    name = "meshjoin/figure-8"
    other = replace(TINY, pace=Pace(0.005, 3, 0.01))
    first, *_ = measured(name, small(name), other, output, MACHINE, lambda _: None)
    assert len(first["runs"][0]["samples"]) == 3


def test_the_real_reports_take_the_place_of_the_stand_in(tmp_path):
    name = "moij/figure-7e"
    experiment = replace(small(name), values=EXPERIMENTS[name].values[-1:])
    (before,) = measured(name, experiment, TINY, tmp_path, MACHINE, lambda _: None)
    assert before["origin"] == "a stand-in for NDP-026B"
    folder = tmp_path / "data" / FOLDER
    folder.mkdir()
    draw = np.random.default_rng(0)
    for month, count in ((4, before["runs"][0]["rows"]), (12, 2_000)):
        lines = (report(month, x) for x in draw.integers(0, 300, count))
        (folder / f"month-{month}").write_text("\n".join(lines))
    (after,) = measured(name, experiment, TINY, tmp_path, MACHINE, lambda _: None)
    assert after["origin"] == "NDP-026B"
    assert after["groups"] == before["groups"]
    assert "NDP-026B)" in caption(experiment, after)


def test_a_curve_is_measured_in_turn_and_adaptive_once():
    figure = EXPERIMENTS["tuned-x-hybridjoin/figure-3"]
    found = list(groups(figure, 1.0))
    assert [group.name for group in found] == ["k = 1", "k = 4", "k = 16"]
    for group in found:
        assert [cell.label.startswith("adaptive") for cell in group.cells].count(True) == 1
        assert len(group.cells) == len(figure.values) + 1


def test_sizes_are_the_papers_or_smaller_at_the_same_shares():
    figure = EXPERIMENTS["moij/figure-7b"]
    quick, default, full = (scale.factor(figure) for scale in SCALES.values())
    assert (quick, default, full) == (0.0025, 0.1, 1.0)
    last = list(groups(figure, default))[-1]
    assert (last.rows, last.cells[0].memory) == (10_000_000, int(0.1 * figure.memory))
    assert SCALES["default"].factor(EXPERIMENTS["x-hybridjoin/figure-3a"]) == 1.0
    with pytest.raises(OptionError, match="contrary"):
        scale_of(quick=True, full=True)


def test_tpch_is_joined_with_all_suppliers_or_with_one_each(output):
    data = replace(EXPERIMENTS["moij/figure-7d"].data, rows=60_000)
    found = prepare(data, data.rows, 1.0, TINY, output / "data")
    assert found.master.rows == pytest.approx(60_000, rel=0.01)
    assert found.unique.rows == found.master.statistics.values
    assert found.schema.field("l_partkey").type == found.master.schema.field("ps_partkey").type


def test_the_command_reports_on_every_figure_and_every_claim(output):
    pytest.importorskip("matplotlib")
    result = CliRunner().invoke(app, ["--report-only", "--output", str(output)])
    assert result.exit_code == 0, result.output
    found = read_findings(output)
    assert f"not measured: {found.counts[UNKNOWN]}" in result.output
    assert sum(found.counts.values()) == len(found.verdicts) > found.counts[UNKNOWN]
    page, text = ((output / f"report.{kind}").read_text() for kind in ("html", "md"))
    assert page.count("data:image/svg+xml;base64,") == len(KINDS)
    assert "src='http" not in page
    assert all(verdict.claim.says in text for verdict in found.verdicts.values())
    assert text.count("](figures/") == len(KINDS)
    assert "stand-in" in text


def test_an_experiment_that_is_not_known_is_a_message():
    assert CliRunner().invoke(app, ["--only", "moij/figure-9"]).exit_code == 1


def test_pcsrj_runs_on_two_processes(tmp_path):
    experiment = replace(EXPERIMENTS["pcsrj/figure-3d"], values=(1.0,))
    (record,) = measured("pcsrj/figure-3d", experiment, TINY, tmp_path, MACHINE, lambda _: None)
    runs = {one["label"]: one for one in record["runs"]}
    assert runs["pcsrj"]["value"] > 0
    assert len(runs["pcsrj"]["samples"]) == len(runs["cachejoin"]["samples"]) >= 2
    assert runs["adaptive"]["value"] > 0 < runs["adaptive on one"]["value"]
