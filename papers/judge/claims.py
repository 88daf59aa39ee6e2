"""The papers' claims as data: what is said, where, and by which rule it is decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from papers.experiment import VARIED
from papers.judge.rules import RULES, Rule
from papers.reading import (
    ExperimentError,
    experiments,
    folder,
    papers,
    read_section,
    tree_of,
)
from semistream.pipeline.file import values
from semistream.pipeline.file.problems import Mistakes, Problem, unknown
from semistream.pipeline.file.sections import Section, setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from papers.experiment import Experiment
    from semistream.pipeline.file.node import Node

__all__ = ["Bounds", "Claim", "claims", "read_claims"]

_PLACES = ("first", "last", "lowest", "highest")
_KEYS = ("to", "over", "at", "since", "until", "field")


@dataclass(frozen=True)
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


def read_bounds(node: Node) -> Bounds:
    """Read ``{least: 1, most: 2}``, of which one suffices."""
    given = values.mapping(values.number(-1e12, 1e12))(node)
    if not given or not set(given) <= {"least", "most"}:
        raise node.mistake("must be {least: …, most: …}, or one of them")
    return Bounds(**given)


@dataclass(frozen=True, kw_only=True)
class Claim(Section):
    """What a paper says, and the rule by which runs decide whether it holds."""

    says: str = setting(values.text)
    where: str = setting(values.text)
    figure: str = setting(values.text)
    rule: Rule
    holds: Bounds = setting(read_bounds)  # noqa: RUF009
    weaker: Bounds = setting(read_bounds)  # noqa: RUF009
    full_size: bool = setting(values.flag, False)
    """Whether it is about an absolute number, which smaller data cannot show."""


def claims() -> dict[str, Claim]:
    """Give all claims by ``paper/name``; ``figure`` has its paper before it.

    Examples
    --------
    >>> print(claims()["pcsrj/small-r"].rule, "·", claims()["pcsrj/small-r"].holds)
    pcsrj to cachejoin · at least 1.5
    """
    found: dict[str, Claim] = {}
    for paper in papers():
        tree = tree_of(folder() / paper / "claims.yaml")
        found |= read_claims(tree, paper, experiments(paper))
    return found


def read_claims(tree: Node, paper: str, known: dict[str, Experiment]) -> dict[str, Claim]:
    """Read the claims of a paper; ``known`` are its experiments.

    Raises
    ------
    ExperimentError
        The file has mistakes: all of them, each with its line.
    """
    name = f"{paper}/claims.yaml"
    if not isinstance(tree.value, dict):
        raise ExperimentError(name, tree.mistake("must be a mapping of claims").problems)
    found, problems = dict[str, Claim](), list[Problem]()
    for key, node in tree.value.items():
        try:
            found[f"{paper}/{key}"] = _claim(node, paper, name, known)
        except ExperimentError as error:
            problems.extend(error.problems)
    if problems:
        raise ExperimentError(name, problems)
    return found


def _claim(node: Node, paper: str, name: str, known: dict[str, Experiment]) -> Claim:
    figure = node.value.get("figure") if isinstance(node.value, dict) else None
    experiment = known.get(f"{paper}/{figure.value}") if figure else None

    def read_figure(node: Node) -> str:
        figures = [full.split("/")[1] for full in known]
        return f"{paper}/{values.choice(tuple(figures))(node)}"

    special: dict[str, Callable[[Node], Any]] = {
        "figure": read_figure,
        "rule": lambda node: _rule(node, experiment),
    }
    return read_section(node, Claim, name, special)


def _rule(node: Node, experiment: Experiment | None) -> Rule:
    """Read ``{ratio: a, to: b, at: first}``: the first key is the rule, its value the line."""
    if not isinstance(node.value, dict):
        raise node.mistake(f"must be a mapping that begins with one of {', '.join(RULES)}")
    name = next((key for key in node.value if key in RULES), None)
    wrong = [key for key in node.value if key not in {*_KEYS, name}]
    if name is None or wrong:
        key = wrong[0]
        raise Mistakes.at(node.value[key].key, unknown("rule: key", key, {*RULES, *_KEYS}))
    lines = tuple(experiment.series) if experiment else ()
    read = _readers(lines, experiment.vary if experiment else "rows")
    given = {key: read[key](value) for key, value in node.value.items() if key != name}
    return Rule(name, values.names(values.choice(lines))(node.value[name]), **given)


def _readers(lines: tuple[str, ...], vary: str) -> dict[str, Callable[[Node], Any]]:
    def place(node: Node) -> float | str:
        return node.value if node.value in _PLACES else VARIED[vary](node)

    return {
        "to": values.choice(lines),
        "over": values.names(values.choice(lines)),
        "at": place,
        "since": VARIED[vary],
        "until": VARIED[vary],
        "field": values.text,
    }
