"""The papers' claims as data: what is said, where, and by which rule it is decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from papers.experiment import (
    VARIED,
    Experiment,
    ExperimentError,
    experiments,
    folder,
    papers,
    validate,
)
from papers.judge.rules import RULES, Rule
from semistream.errors import OptionError

_PLACES = ("first", "last", "lowest", "highest")


@dataclass(frozen=True, config={"extra": "forbid"})
class Bounds:
    """From where to where a number may lie, both ends included."""

    least: float = -math.inf
    most: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most

    def __str__(self) -> str:
        if math.isinf(self.most):
            return f"at least {self.least:g}"
        if math.isinf(self.least):
            return f"at most {self.most:g}"
        return f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})
class Claim:
    """What a paper says, and the rule by which runs decide whether it holds."""

    says: str
    where: str
    figure: str
    rule: Rule
    holds: Bounds
    weaker: Bounds
    full_size: bool = False
    """Whether it is about an absolute number, which smaller data cannot show."""


def claims() -> dict[str, Claim]:
    """Return all claims by ``paper/name``; ``figure`` has its paper before it.

    Examples
    --------
    >>> print(claims()["pcsrj/small-r"].rule, "·", claims()["pcsrj/small-r"].holds)
    pcsrj to cachejoin · at least 1.5
    """
    known_claims: dict[str, Claim] = {}
    for paper in papers():
        text = (folder() / paper / "claims.yaml").read_text(encoding="utf-8")
        known_claims |= read_claims(text, paper, experiments(paper))
    return known_claims


def read_claims(text: str, paper: str, known: Mapping[str, Experiment]) -> dict[str, Claim]:
    """Read the claims of a paper; ``known`` are its experiments.

    Raises
    ------
    ExperimentError
        The file has mistakes: all of them.
    """
    known_claims, mistakes = dict[str, Claim](), list[str]()
    for key, given in yaml.safe_load(text).items():
        name, figure = f"{paper}/claims.yaml: {key}", f"{paper}/{given.get('figure')}"
        try:
            if figure not in known:
                raise OptionError.unknown("figure", figure, known)
            rule = _rule(given.get("rule"), known[figure])
            content = {**given, "figure": figure, "rule": rule}
            known_claims[f"{paper}/{key}"] = validate(content, Claim, name)
        except ExperimentError as error:
            mistakes.append(str(error))
        except ValueError as error:
            mistakes.append(f"{name}: {error}")
    if mistakes:
        raise ExperimentError("\n".join(mistakes))
    return known_claims


def _rule(given: Any, experiment: Experiment) -> Rule:
    """Read ``{ratio: a, to: b, at: first}``: the first key is the rule, its value the line."""
    name, *rest = given
    keys = ("to", "over", "at", "since", "until", "field")
    for key, legal in ((name, tuple(RULES)), *((key, keys) for key in rest)):
        if key not in legal:
            raise OptionError.unknown("rule: key", key, legal)
    options = {key: given[key] for key in rest}
    for key in {"at", "since", "until"} & set(options):
        if options[key] not in _PLACES:
            options[key] = TypeAdapter(VARIED[experiment.vary]).validate_python(options[key])
    of = given[name] if isinstance(given[name], list) else [given[name]]
    rule = Rule(name, tuple(of), **options | {"over": tuple(options.get("over", ()))})
    for line in rule.lines:
        if line not in experiment.series:
            raise OptionError.unknown("rule: line", line, experiment.series)
    return rule
