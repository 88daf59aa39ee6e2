"""The papers' claims as data: what is said, where, and by which rule it is decided."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from papers.experiment import VARIED, Experiment
from papers.judge.rules import RULES, Rule
from papers.reading import ExperimentError, experiments, folder, papers
from semistream import values
from semistream.pipeline.file.section import Section
from semistream.pipeline.file.validate import read_yaml
from semistream.values import IllegalValueError, Kind, choice, names, read_each

if TYPE_CHECKING:
    from pydantic import ValidationInfo

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


def _read_bounds(value: object) -> Bounds:
    """Read ``{least: 1, most: 2}``, of which one suffices."""
    bounds = values.mapping(values.number(-1e12, 1e12)).read(value)
    if not bounds or not set(bounds) <= {"least", "most"}:
        raise IllegalValueError.of("must be {least: …, most: …}, or one of them")
    return Bounds(**bounds)


def _read_figure(value: object, info: "ValidationInfo[Any]") -> str:
    figure: str = choice(info.context).read(value)
    return figure


def _read_rule(value: object, info: "ValidationInfo[Any]") -> Rule:
    """Read ``{ratio: a, to: b, at: first}``: the first key is the rule, its value the line."""
    if not isinstance(value, dict):
        raise IllegalValueError.of(f"must be a mapping that begins with one of {', '.join(RULES)}")
    name = next((key for key in value if key in RULES), None)
    wrong = [key for key in value if key not in {*_KEYS, name}]
    if name is None or wrong:
        legal = sorted({*RULES, *_KEYS})
        message = (
            f"is not known; choose one of: {', '.join(legal)}.{values.nearest(wrong[0], legal)}"
        )
        raise IllegalValueError(((wrong[0],), message))
    experiment: Experiment | None = info.context.get(info.data.get("figure"))
    lines = choice(experiment.series if experiment else ())
    varied = VARIED[experiment.vary if experiment else "rows"]
    kinds = {
        name: names(lines),
        "to": lines,
        "over": names(lines),
        "at": Kind(lambda place: place if place in _PLACES else varied.read(place), dict),
        "since": varied,
        "until": varied,
        "field": values.TEXT,
    }
    given = {key: read_each([(key, item)], kinds[key].read)[0] for key, item in value.items()}
    return Rule(name, given.pop(name), **given)


_BOUNDS = Kind(_read_bounds, dict)


@dataclass(frozen=True, kw_only=True)
class Claim(Section):
    """What a paper says, and the rule by which runs decide whether it holds."""

    says: Annotated[str, values.TEXT]
    where: Annotated[str, values.TEXT]
    figure: Annotated[str, Kind(_read_figure, dict, by_context=True)]
    rule: Annotated[Rule, Kind(_read_rule, dict, by_context=True)]
    holds: Annotated[Bounds, _BOUNDS]
    weaker: Annotated[Bounds, _BOUNDS]
    full_size: Annotated[bool, values.FLAG] = False
    """Whether it is about an absolute values.number, which smaller data cannot show."""


def claims() -> dict[str, Claim]:
    """Return all claims by ``paper/name``; ``figure`` has its paper before it.

    Examples
    --------
    >>> print(claims()["pcsrj/small-r"].rule, "·", claims()["pcsrj/small-r"].holds)
    pcsrj to cachejoin · at least 1.5
    """
    known: dict[str, Claim] = {}
    for paper in papers():
        text = (folder() / paper / "claims.yaml").read_text(encoding="utf-8")
        known |= read_claims(text, paper, experiments(paper))
    return known


def read_claims(text: str, paper: str, known: dict[str, Experiment]) -> dict[str, Claim]:
    """Read the claims of a paper; ``known`` are its experiments.

    Raises
    ------
    ExperimentError
        The file has mistakes: all of them, each with its line.
    """
    figures = {name.split("/")[1]: experiment for name, experiment in known.items()}
    file = f"{paper}/claims.yaml"
    read, _ = read_yaml(dict[str, Claim], file, text, {}, figures, ExperimentError)
    return {
        f"{paper}/{name}": replace(claim, figure=f"{paper}/{claim.figure}")
        for name, claim in read.items()
    }
