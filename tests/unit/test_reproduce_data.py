"""The papers' experiments as data: all there, all read, and mistakes told with their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from papers.published import COLUMNS, published, read_published
from papers.reading import (
    ExperimentError,
    experiments,
    folder,
    papers,
    read_experiment,
)
from semistream.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
figure: Figure 1
section: "1"
title: a rate
kind: rate
data: {source: zipf, rows: 1M}
memory: 1MB
vary: rows
values: [1M, 2M]
series: [hybridjoin, adaptive]
"""


def read(tmp_path: Path, text: str):
    path = tmp_path / "figure.yaml"
    path.write_text(text)
    return read_experiment(path, "figure.yaml")


def test_every_file_is_in_the_order_of_its_paper():
    for name, paper in papers().items():
        files = {f.name for f in (folder() / name).iterdir() if f.name.startswith("figure-")}
        assert files == {f"{figure}.yaml" for figure in paper.order}


def test_adaptive_is_beside_the_published_wherever_rates_are_measured():
    for name, experiment in experiments().items():
        if experiment.kind not in {"optimum", "reads", "pinned"}:
            assert "adaptive" in experiment.series, name


def test_what_is_published_belongs_to_a_figure_and_to_its_lines():
    for name, paper in papers().items():
        for point in published(name):
            assert point.figure in {"", *paper.order}
            if point.series:
                series = experiments(f"{name}/{point.figure}")[f"{name}/{point.figure}"].series
                assert set(point.series.split("/")) <= set(series)


def test_one_experiment_or_one_paper_can_be_chosen():
    assert list(experiments("moij/figure-7a")) == ["moij/figure-7a"]
    assert len(experiments("pcsrj")) == 7
    with pytest.raises(OptionError, match="Did you mean 'moij/figure-7a'"):
        experiments("moij/figure7a")


def test_a_good_file_is_read(tmp_path):
    found = read(tmp_path, GOOD)
    assert found.values == (1_000_000, 2_000_000)
    assert found.data.bytes == 120_000_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: rate", "kind: rat", r"figure.yaml:4:7: kind 'rat' is not known.*'rate'"),
        ("title: a rate\n", "", r"figure.yaml:1:1: title is missing"),
        ("memory: 1MB", "memry: 1MB", r"figure.yaml:6:1: key 'memry'.*'memory'"),
        ("memory: 1MB\n", "", r"memory is missing; give memory or share"),
        ("values: [1M, 2M]", "values: [1M, soon]", r"figure.yaml:8:14: values\[1\] must be"),
        ("values: [1M, 2M]", "values: [2M, 1M]", r"figure.yaml:8:9: values must be in ascending"),
        ("rows: 1M}", "rows: 1M, skew: 1}", r"figure.yaml:5:32: data: key 'skew' is not known"),
        ("[hybridjoin,", "[hybridjion,", r"figure.yaml:9:10: series\[0\] 'hybridjion'"),
        ("[hybridjoin, adaptive]", "{a: {buffer: default}}", r"figure.yaml:9:13: series.a has no"),
        ("[hybridjoin, adaptive]", "{a: {algorithm: x}}", r"figure.yaml:9:25: .*'x' is not known"),
        ("vary: rows\nvalues: [1M, 2M]", "vary: memory\nvalues: [1MB]", r"6:9: memory is varied"),
        ("vary: rows\nvalues: [1M, 2M]", "vary: k\nvalues: [1]", r"vary k is for the kinds"),
        ("vary: rows\nvalues: [1M, 2M]", "vary: tasks\nvalues: [1]", r"tasks is for the kind"),
    ],
)
def test_mistakes_are_told_with_their_lines(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(ExperimentError, match=message):
        read(tmp_path, GOOD.replace(old, new))


def test_several_mistakes_are_told_at_once(tmp_path):
    with pytest.raises(ExperimentError) as error:
        read(tmp_path, GOOD.replace("kind: rate", "kind: x").replace("1MB", "much"))
    assert [problem.mark.line for problem in error.value.problems] == [4, 6]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("figure-1,a,1,2,x,guess,1,", r"p.csv:2: read 'guess' is not known"),
        ("figure-1,a,1,,x,text,1,", r"p.csv:2: a point has x and value"),
        ("figure-1,a,soon,2,x,text,1,", r"p.csv:2: rows='soon' is not a count"),
    ],
)
def test_mistakes_in_what_is_published_are_told_with_their_lines(line, message):
    with pytest.raises(OptionError, match=message):
        read_published([",".join(COLUMNS), line], "p.csv")
