"""Rules: what number a claim is decided by, as pure functions of a record's points."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from papers.judge.intervals import Interval, interval, ratio_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Point = Mapping[str, Any]

__all__ = ["RULES", "Found", "Rule", "paired"]


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
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What was measured there, for the reason."""


def _measured(points: Iterable[Point], rule: Rule) -> list[Point]:
    """Give the points within the rule's limits that have all of its lines."""
    return [
        point
        for point in points
        if rule.since <= point["x"] <= rule.until
        and all("value" in point["runs"].get(line, {}) for line in rule.lines)
    ]


def _place(points: Sequence[Point], at: float | str, key: Callable[[Point], float]) -> Point | None:
    """Choose a point: the first, the last, the one with the lowest or highest number, or at x."""
    if not points:
        return None
    chosen = {"first": points[0], "last": points[-1]}
    chosen |= {"lowest": min(points, key=key), "highest": max(points, key=key)}
    if isinstance(at, str):
        return chosen[at]
    return next((point for point in points if math.isclose(point["x"], at, rel_tol=1e-6)), None)


def paired(of: Mapping[str, Any], to: Mapping[str, Any]) -> Interval | None:
    """Give the interval of the ratio: both sides were measured side by side."""
    return ratio_interval(list(zip(of.get("samples", ()), to.get("samples", ()), strict=False)))


def _ratio(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,) = rule.of

    def key(point: Point) -> float:
        return float(point["runs"][of]["value"] / point["runs"][rule.to]["value"])

    point = _place(_measured(points, rule), rule.at, key)
    if point is None:
        return None
    runs = {line: point["runs"][line] for line in (of, rule.to)}
    return Found(key(point), point["x"], paired(runs[of], runs[rule.to]), runs)


def _change(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,), found = rule.of, _measured(points, rule)
    if len(found) < 2:
        return None
    ratios = [p["runs"][of]["value"] / p["runs"][rule.to]["value"] for p in (found[0], found[-1])]
    runs = {line: found[-1]["runs"][line] for line in (of, rule.to)}
    return Found(ratios[1] / ratios[0], found[-1]["x"], None, runs)


def _lead(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,) = rule.of

    def rival(point: Point) -> str:
        return max(rule.over, key=lambda line: point["runs"][line]["value"])

    def key(point: Point) -> float:
        return float(point["runs"][of]["value"] / point["runs"][rival(point)]["value"])

    point = _place(_measured(points, rule), "lowest", key)
    if point is None:
        return None
    runs = {line: point["runs"][line] for line in (of, rival(point))}
    return Found(key(point), point["x"], paired(*runs.values()), runs)


def _saved(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,) = rule.of
    point = _place(_measured(points, rule), rule.at, lambda _: 0.0)
    if point is None or not point["runs"][rule.to].get("pages_a_row"):
        return None
    runs = {line: point["runs"][line] for line in (of, rule.to)}
    saved = 1 - runs[of]["pages_a_row"] / runs[rule.to]["pages_a_row"]
    return Found(saved, point["x"], None, runs)


def _value(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,) = rule.of
    point = _place(_measured(points, rule), rule.at, lambda p: float(p["runs"][of]["value"]))
    if point is None or rule.field not in point["runs"][of]:
        return None
    run = point["runs"][of]
    sure = interval(run["samples"]) if rule.field == "value" and run.get("samples") else None
    return Found(run[rule.field], point["x"], sure, {of: run})


def _growth(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,), found = rule.of, _measured(points, rule)
    if len(found) < 2:
        return None
    first, last = (p["runs"][of] for p in (found[0], found[-1]))
    return Found(last["value"] / first["value"], found[-1]["x"], paired(last, first), {of: last})


def _share(points: Iterable[Point], rule: Rule) -> Found | None:
    (of,), found = rule.of, _measured(points, rule)
    point = _place(found, rule.at, lambda p: float(p["runs"][of]["value"]))
    if point is None:
        return None
    best = max((p["runs"][of] for p in found), key=lambda run: run["value"])
    run = point["runs"][of]
    return Found(run["value"] / best["value"], point["x"], paired(run, best), {of: run})


def _choice(points: Iterable[Point], rule: Rule) -> Found | None:
    """Give what is measured at the model's best value, of the best that is measured."""
    (of,) = rule.of
    found = [p for p in _measured(points, rule) if "predicted" in p["runs"][of]]
    if not found:
        return None
    chosen = max(found, key=lambda p: p["runs"][of]["predicted"])
    best = max((p["runs"][of] for p in found), key=lambda run: run["value"])
    run = chosen["runs"][of]
    return Found(run["value"] / best["value"], chosen["x"], paired(run, best), {of: run})


def _deviation(points: Iterable[Point], rule: Rule) -> Found | None:
    runs = [
        point["runs"][line]
        for point in points
        for line in rule.of
        if {"value", "predicted"} <= point["runs"].get(line, {}).keys()
    ]
    errors = [abs(run["predicted"] / run["value"] - 1) for run in runs]
    return Found(statistics.median(errors), None, None) if errors else None


RULES: Mapping[str, Callable[[Iterable[Point], Rule], Found | None]] = {
    "ratio": _ratio,
    "change": _change,
    "lead": _lead,
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
