"""Rules: what number a claim is decided by, as pure functions of a record's points."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from papers.judge.intervals import Interval, interval, ratio_interval

Run = Mapping[str, Any]
Point = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """How a number is taken from the runs of a figure."""

    name: str
    of: tuple[str, ...]
    """The lines it is about; several only for ``deviation``."""
    to: str = ""
    over: tuple[str, ...] = ()
    at: float | str = "first"
    since: float = -math.inf
    until: float = math.inf
    field: str = "value"

    @property
    def lines(self) -> set[str]:
        """The lines that must have been measured."""
        return {*self.of, *self.over, *([self.to] if self.to else ())}

    def __str__(self) -> str:
        return _TEXTS[self.name].format(
            of=" and ".join(self.of), to=self.to, over=" and ".join(self.over), field=self.field
        )


@dataclass(frozen=True)
class Found:
    """The number, where it was found, and how sure it is."""

    value: float
    x: float | None = None
    sure: Interval | None = None
    runs: Mapping[str, Run] = field(default_factory=dict)
    """What was measured there, for the reason."""


def paired(of: Run, to: Run) -> Interval | None:
    """Return the interval of the ratio: both sides were measured side by side."""
    return ratio_interval(list(zip(of.get("samples", ()), to.get("samples", ()), strict=False)))


def find(points: Iterable[Point], rule: Rule) -> Found | None:
    """Return the number of a rule; None where no point has what it needs."""
    if rule.name == "deviation":
        return _deviation(points, rule)
    measured = [
        point
        for point in points
        if rule.since <= point["x"] <= rule.until
        and all("value" in point["runs"].get(line, {}) for line in rule.lines)
    ]
    return RULES[rule.name](measured, rule) if measured else None


def _place(points: Sequence[Point], at: float | str, key: Callable[[Point], float]) -> Point | None:
    """Choose a point: the first, the last, the one with the lowest or highest number, or at x."""
    chosen = {"first": points[0], "last": points[-1]}
    chosen |= {"lowest": min(points, key=key), "highest": max(points, key=key)}
    if isinstance(at, str):
        return chosen[at]
    return next((point for point in points if math.isclose(point["x"], at, rel_tol=1e-6)), None)


def _value_of(line: str) -> Callable[[Point], float]:
    return lambda point: float(point["runs"][line]["value"])


def _to_best(points: Sequence[Point], rule: Rule, at: float | str) -> Found | None:
    """Return a line to another one, or to the best of some, at a point."""
    (of,) = rule.of

    def rival(point: Point) -> str:
        return max(rule.over or (rule.to,), key=lambda line: point["runs"][line]["value"])

    def key(point: Point) -> float:
        return float(point["runs"][of]["value"] / point["runs"][rival(point)]["value"])

    point = _place(points, at, key)
    if point is None:
        return None
    runs = {line: point["runs"][line] for line in (of, rival(point))}
    return Found(key(point), point["x"], paired(*runs.values()), runs)


def _change(points: Sequence[Point], rule: Rule) -> Found | None:
    (of,) = rule.of
    if len(points) < 2:
        return None
    ratios = [p["runs"][of]["value"] / p["runs"][rule.to]["value"] for p in (points[0], points[-1])]
    runs = {line: points[-1]["runs"][line] for line in (of, rule.to)}
    return Found(ratios[1] / ratios[0], points[-1]["x"], None, runs)


def _saved(points: Sequence[Point], rule: Rule) -> Found | None:
    (of,) = rule.of
    point = _place(points, rule.at, lambda _: 0.0)
    if point is None or not point["runs"][rule.to].get("pages_a_row"):
        return None
    runs = {line: point["runs"][line] for line in (of, rule.to)}
    saved = 1 - runs[of]["pages_a_row"] / runs[rule.to]["pages_a_row"]
    return Found(saved, point["x"], None, runs)


def _value(points: Sequence[Point], rule: Rule) -> Found | None:
    (of,) = rule.of
    point = _place(points, rule.at, _value_of(of))
    if point is None or rule.field not in point["runs"][of]:
        return None
    run = point["runs"][of]
    sure = interval(run["samples"]) if rule.field == "value" and run.get("samples") else None
    return Found(run[rule.field], point["x"], sure, {of: run})


def _growth(points: Sequence[Point], rule: Rule) -> Found | None:
    return _against(points[-1], points[0], rule) if len(points) > 1 else None


def _share(points: Sequence[Point], rule: Rule) -> Found | None:
    (of,) = rule.of
    point = _place(points, rule.at, _value_of(of))
    return _against(point, max(points, key=_value_of(of)), rule) if point else None


def _choice(points: Sequence[Point], rule: Rule) -> Found | None:
    """Return what is measured at the model's best value, of the best that is measured."""
    (of,) = rule.of
    predicted = [point for point in points if "predicted" in point["runs"][of]]
    if not predicted:
        return None
    chosen = max(predicted, key=lambda point: point["runs"][of]["predicted"])
    return _against(chosen, max(predicted, key=_value_of(of)), rule)


def _against(point: Point, other: Point, rule: Rule) -> Found:
    """Return a line at a point, to itself at another."""
    (of,) = rule.of
    run, base = point["runs"][of], other["runs"][of]
    return Found(run["value"] / base["value"], point["x"], paired(run, base), {of: run})


def _deviation(points: Iterable[Point], rule: Rule) -> Found | None:
    runs = [
        point["runs"][line]
        for point in points
        for line in rule.of
        if {"value", "predicted"} <= point["runs"].get(line, {}).keys()
    ]
    errors = [abs(run["predicted"] / run["value"] - 1) for run in runs]
    return Found(statistics.median(errors)) if errors else None


RULES: Mapping[str, Callable[[Sequence[Point], Rule], Found | None]] = {
    "ratio": lambda points, rule: _to_best(points, rule, rule.at),
    "lead": lambda points, rule: _to_best(points, rule, "lowest"),
    "change": _change,
    "saved": _saved,
    "value": _value,
    "growth": _growth,
    "share": _share,
    "choice": _choice,
    "deviation": _deviation,
}
_TEXTS = {
    "ratio": "{of} to {to}",
    "change": "{of} to {to}, at the last point to at the first",
    "lead": "{of} to the best of {over}, at its worst point",
    "saved": "pages read for a row that {of} saves of those of {to}",
    "value": "{field} of {of}",
    "growth": "{of}, at the last point to at the first",
    "share": "{of}, to its best point",
    "choice": "{of} at the model's choice, to its best point",
    "deviation": "median error of what is predicted for {of}",
}
