"""Verdicts: computed by rules from raw runs, and turned by them."""

from __future__ import annotations

import math

import pytest

from papers.judge.claims import Bounds, claims, read_claims
from papers.judge.intervals import interval
from papers.judge.verdict import HOLDS, NOT, UNKNOWN, WEAKER, judge, lost
from papers.reading import ExperimentError, experiments
from support.papers import EXPERIMENTS, record_of

CLAIMS = claims()


def showing(claim, number: float):
    """Make a record from which the claim's rule takes this number."""
    record, rule = record_of(claim.figure), claim.rule
    points = [p for p in record["points"] if rule.since <= p["x"] <= rule.until]
    first, last = points[0]["runs"], points[-1]["runs"]
    everywhere = [point["runs"][rule.of[0]] for point in points]
    if rule.name in {"ratio", "lead", "value"}:
        field = rule.field if rule.name == "value" else "value"
        for run in everywhere:
            run |= {field: number, "samples": [number] * 3}
    elif rule.name in {"change", "growth"}:
        last[rule.of[0]]["value"] = number
    elif rule.name == "saved":
        first[rule.of[0]]["pages_a_row"] = 1 - number
    elif rule.name == "deviation":
        for point in record["points"]:
            for line in rule.of:
                point["runs"][line]["predicted"] = 1 + number
    elif rule.name == "share":
        places = {"first": 0, "last": -1}
        at = rule.at if rule.at in places else None
        place = (
            points[places[at]]
            if at
            else next(p for p in points if math.isclose(p["x"], rule.at, rel_tol=1e-6))
        )
        place["runs"][rule.of[0]]["value"] = number
    elif rule.name == "choice":
        first[rule.of[0]] |= {"predicted": 2.0, "value": number}
    return {claim.figure: record}


def numbers(claim):
    """Give numbers of which one is within the bounds, one within the weaker ones, one outside."""
    ends = {
        end
        for bounds in (claim.holds, claim.weaker)
        for end in (bounds.least, bounds.most)
        if not math.isinf(end)
    }
    return sorted({end * factor for end in ends for factor in (0.5, 0.999, 1, 1.001, 2)})


@pytest.mark.parametrize("name", CLAIMS)
def test_a_verdict_turns_when_the_data_does(name):
    claim = CLAIMS[name]
    found = {}
    for number in numbers(claim):
        if claim.rule.name in {"share", "choice"} and number > 1:
            continue  # no point is above the best one
        verdict = judge(claim, showing(claim, number))
        assert verdict.value == pytest.approx(number), verdict.reason
        near = any(
            math.isclose(number, end, rel_tol=1e-9)
            for b in (claim.holds, claim.weaker)
            for end in (b.least, b.most)
        )
        expected = HOLDS if number in claim.holds else WEAKER if number in claim.weaker else NOT
        assert near or verdict.word == expected
        found[verdict.word] = verdict
    assert set(found) == {HOLDS, WEAKER, NOT}
    assert str(claim.holds) in found[NOT].reason


def test_the_reason_says_where_how_sure_and_what_the_lines_did():
    claim = CLAIMS["x-hybridjoin/ahead-small"]
    record = record_of(claim.figure)
    runs = record["points"][0]["runs"]
    runs["x-hybridjoin"] |= {"value": 1.4, "samples": [1.2, 1.4, 1.6], "pages_a_row": 0.002}
    verdict = judge(claim, {claim.figure: record})
    assert verdict.word == HOLDS
    assert "at R = 0.5M: 1.4 (95 %: 0.903 to 1.9)" in verdict.reason
    assert "The bound 1.3 lies within the noise" in verdict.reason
    assert "x-hybridjoin read 2 pages for 1,000 rows, its cache answered 50%" in verdict.reason


def test_slices_too_short_for_a_row_leave_a_ratio_without_an_interval():
    claim = CLAIMS["pcsrj/small-r"]
    record = record_of(claim.figure)
    record["points"][0]["runs"]["cachejoin"]["samples"] = [0, 0, 0]
    assert "95 %" not in judge(claim, {claim.figure: record}).reason


def test_what_was_not_run_has_no_verdict():
    claim = CLAIMS["pcsrj/small-r"]
    assert judge(claim, {}).word == UNKNOWN
    record = record_of(claim.figure)
    for point in record["points"]:
        point["runs"]["pcsrj"] = {"refused": "too small"}
    verdict = judge(claim, {claim.figure: record})
    assert (verdict.word, verdict.reason) == (UNKNOWN, "pcsrj: too small")


def test_an_absolute_number_is_not_judged_on_smaller_data():
    claim = CLAIMS["x-hybridjoin/pinned-50"]
    assert judge(claim, {claim.figure: record_of(claim.figure, 0.1)}).word == UNKNOWN
    assert judge(claim, {claim.figure: record_of(claim.figure)}).word == NOT


def test_points_where_adaptive_is_not_among_the_best_are_found():
    record = record_of("moij/figure-7a")
    assert not list(lost({"moij/figure-7a": record}, EXPERIMENTS))
    record["points"][2]["runs"]["moij"]["value"] = 2.0
    (found,) = lost({"moij/figure-7a": record}, EXPERIMENTS)
    assert (found.where, found.rival, found.share) == ("5 %", "moij", 0.5)


def test_bounds_that_hold_are_within_those_that_hold_weaker_or_beyond():
    for name, claim in CLAIMS.items():
        assert claim.holds != claim.weaker, name
        assert claim.weaker.least <= claim.holds.least, name
        assert claim.weaker.most >= claim.holds.most, name


GOOD = """\
a:
  says: it is so
  where: section 1
  figure: figure-7a
  rule: {ratio: moij, to: cachejoin, at: first}
  holds: {least: 2}
  weaker: {least: 1}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("figure-7a", "figure-7", r"moij/claims.yaml:4:11: a.figure 'figure-7' is not known"),
        ("ratio:", "ration:", r"moij/claims.yaml:5:18: a.rule.ration is not known.*'ratio'"),
        ("to: cachejoin", "to: cashjoin", r"5:27: a.rule.to 'cashjoin'.*'cachejoin'"),
        ("at: first", "at: 2", r"5:42: a.rule.at must be from 0.0001 to 1"),
        ("holds: {least: 2}", "holds: {lest: 2}", r"6:10: a.holds must be {least"),
        ("  where: section 1\n", "", r"1:1: a.where is missing"),
    ],
)
def test_mistakes_in_claims_are_told_with_their_lines(old, new, message):
    assert old in GOOD
    known = experiments("moij")
    assert read_claims(GOOD, "moij", known)["moij/a"].holds == Bounds(least=2)
    with pytest.raises(ExperimentError, match=message):
        read_claims(GOOD.replace(old, new), "moij", known)


def test_intervals_shrink_with_samples():
    few, many = interval([1, 2, 3, 2]), interval([1, 2, 3, 2] * 20)
    assert few is not None
    assert many is not None
    assert many.high - many.low < few.high - few.low


def test_a_line_with_less_to_do_is_no_rival_of_adaptive():
    record = record_of("moij/figure-7e")
    record["points"][0]["runs"]["cachejoin"]["value"] = 100.0  # one report a longitude
    assert not list(lost({"moij/figure-7e": record}, EXPERIMENTS))
    record["points"][0]["runs"]["moij"]["value"] = 2.0
    (found,) = lost({"moij/figure-7e": record}, EXPERIMENTS)
    assert (found.rival, found.share) == ("moij", 0.5)


def test_adaptive_is_no_rival_of_itself():
    record = record_of("pcsrj/figure-3a")
    record["points"][0]["runs"]["adaptive on one"]["value"] = 100.0
    assert not list(lost({"pcsrj/figure-3a": record}, EXPERIMENTS))
    record["points"][0]["runs"]["pcsrj"]["value"] = 2.0
    (found,) = lost({"pcsrj/figure-3a": record}, EXPERIMENTS)
    assert (found.rival, found.share, found.same) == ("pcsrj", 0.5, False)
