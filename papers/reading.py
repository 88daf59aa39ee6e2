"""Reading the experiments' files: every mistake is found, each with its line."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from papers.experiment import (
    VARIED,
    Data,
    Experiment,
    Lines,
    Paper,
    read_series,
    read_varied,
)
from semistream.errors import OptionError, SemistreamError
from semistream.pipeline.file import values
from semistream.pipeline.file.problems import Mistakes, Problem, unknown
from semistream.pipeline.file.sections import Section

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.resources.abc import Traversable

    from semistream.pipeline.file.node import Node

__all__ = ["ExperimentError", "experiments", "papers", "read_experiment", "read_section", "tree_of"]

S = TypeVar("S", bound=Section)
_PAPERS = ("meshjoin", "x-hybridjoin", "tuned-x-hybridjoin", "pcsrj", "moij")


class ExperimentError(SemistreamError, ValueError):
    """A file of an experiment or of claims has mistakes; the message lists all, with their lines.

    Examples
    --------
    >>> from semistream.pipeline.file.problems import Mark
    >>> print(ExperimentError("figure-1.yaml", [Problem(Mark(2, 7), "kind is missing")]))
    figure-1.yaml:2:7: kind is missing
    """

    def __init__(self, name: str, problems: list[Problem] | tuple[Problem, ...]) -> None:
        super().__init__(name, problems)
        self.name, self.problems = name, tuple(sorted(set(problems)))

    def __str__(self) -> str:
        return "\n".join(
            f"{self.name}:{p.mark.line}:{p.mark.column}: {p.message}" for p in self.problems
        )


def folder() -> Traversable:
    """Give the folder of the papers' files: data of this package."""
    return files("papers")


def papers() -> dict[str, Paper]:
    """Give the papers by name, in the order in which they are shown.

    Examples
    --------
    >>> list(papers())
    ['meshjoin', 'x-hybridjoin', 'tuned-x-hybridjoin', 'pcsrj', 'moij']
    """
    return {
        name: read_section(tree_of(folder() / name / "paper.yaml"), Paper, f"{name}/paper.yaml")
        for name in _PAPERS
    }


def experiments(only: str | None = None) -> dict[str, Experiment]:
    """Give the experiments by ``paper/figure``, in order; all, or those of one name.

    Parameters
    ----------
    only
        ``"moij/figure-7a"``, or ``"moij"`` for all of a paper.

    Examples
    --------
    >>> experiments("meshjoin/figure-8")["meshjoin/figure-8"].kind
    'reads'
    """
    known = [f"{name}/{figure}" for name, paper in papers().items() for figure in paper.order]
    chosen = [name for name in known if only in {None, name, name.split("/")[0]}]
    if not chosen:
        raise OptionError.unknown("experiment", only, [*known, *_PAPERS])
    return {name: read_experiment(folder() / f"{name}.yaml", f"{name}.yaml") for name in chosen}


def tree_of(file: Traversable) -> Node:
    """Parse a YAML file; what is not YAML is an error with its line."""
    from semistream.pipeline.file.text import parse  # noqa: PLC0415 - the extra may be missing

    try:
        tree, problems = parse(file.read_text(encoding="utf-8"), {})
    except Mistakes as mistakes:
        raise ExperimentError(file.name, mistakes.problems) from None
    if problems:
        raise ExperimentError(file.name, problems)
    return tree


def read_experiment(file: Traversable, name: str) -> Experiment:
    """Read one experiment.

    Raises
    ------
    ExperimentError
        The file has mistakes: all of them, each with its line.
    """
    tree = tree_of(file)
    vary = _varied(tree)
    special: dict[str, Callable[[Node], Any]] = {
        "data": lambda node: read_section(node, Data, name),
        "values": read_varied(vary),
        "lines": _lines,
        "series": read_series,
    }
    return read_section(tree, Experiment, name, special)


def _varied(tree: Node) -> str:
    """Give what is varied; a word that is not known is reported with the others."""
    node = tree.value.get("vary") if isinstance(tree.value, dict) else None
    return str(node.value) if node and node.value in VARIED else "rows"


def _lines(node: Node) -> Lines:
    if not isinstance(node.value, dict) or set(node.value) != {"vary", "values"}:
        raise node.mistake("must be {vary: …, values: […]}")
    vary = values.choice(tuple(VARIED))(node.value["vary"])
    return Lines(vary, read_varied(vary)(node.value["values"]))


def read_section(
    node: Node,
    section: type[S],
    name: str,
    special: Mapping[str, Callable[[Node], Any]] | None = None,
) -> S:
    """Read a mapping as a section; unknown, missing and wrong keys are mistakes, all told at once.

    Parameters
    ----------
    special
        Readers of fields that have none of their own.
    """
    known = {f.name: f for f in fields(section)}
    if not isinstance(node.value, dict):
        message = f"must be a mapping with {', '.join(known)}; it is {node.shown}"
        raise ExperimentError(name, node.mistake(message).problems)
    problems: list[Problem] = []
    read: dict[str, Any] = {}
    for key, value in node.value.items():
        if key not in known:
            problems.append(Problem(value.key, unknown(_key(node), key, known)))
            continue
        reader = (special or {}).get(key) or known[key].metadata["read"]
        try:
            read[key] = reader(value)
        except (Mistakes, ExperimentError) as error:
            problems.extend(error.problems)
    required = [f.name for f in known.values() if f.default is f.default_factory is MISSING]
    missing = (key for key in required if key not in node.value)
    problems.extend(Problem(node.mark, f"{_key(node)} {key} is missing") for key in missing)
    if problems:
        raise ExperimentError(name, problems)
    made = section(**read)
    for key, message in made.conflicts():
        place = node.value.get(key, node)
        problems.append(Problem(place.mark, f"{key} {message}"))
    if problems:
        raise ExperimentError(name, problems)
    return made


def _key(node: Node) -> str:
    return f"{node.where}: key" if node.where else "key"
