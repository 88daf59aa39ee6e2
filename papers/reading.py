"""Reading the experiments' files: every mistake is found, each with its line."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from papers.experiment import Experiment, Paper
from semistream.errors import OptionError
from semistream.pipeline.file.errors import PipelineError
from semistream.pipeline.file.validate import read_yaml

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["ExperimentError", "experiments", "folder", "papers", "read_experiment"]

_PAPERS = ("meshjoin", "x-hybridjoin", "tuned-x-hybridjoin", "pcsrj", "moij")


class ExperimentError(PipelineError):
    """A file of an experiment or of claims has mistakes; the message lists all, with their lines.

    Examples
    --------
    >>> from semistream.pipeline.file.errors import Mark, Problem
    >>> print(ExperimentError("figure-1.yaml", [Problem(Mark(2, 7), "kind is missing")]))
    figure-1.yaml:2:7: kind is missing
    """


def folder() -> Traversable:
    """Return the folder of the papers' files: data of this package."""
    return files("papers")


def papers() -> dict[str, Paper]:
    """Return the papers by name, in the order in which they are shown.

    Examples
    --------
    >>> list(papers())
    ['meshjoin', 'x-hybridjoin', 'tuned-x-hybridjoin', 'pcsrj', 'moij']
    """
    read = {}
    for name in _PAPERS:
        text = (folder() / name / "paper.yaml").read_text(encoding="utf-8")
        read[name] = read_yaml(Paper, f"{name}/paper.yaml", text, {}, error=ExperimentError)[0]
    return read


def experiments(only: str | None = None) -> dict[str, Experiment]:
    """Return the experiments by ``paper/figure``, in order; all, or those of one name.

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


def read_experiment(file: Traversable, name: str) -> Experiment:
    """Read one experiment.

    Raises
    ------
    ExperimentError
        The file has mistakes: all of them, each with its line.
    """
    text = file.read_text(encoding="utf-8")
    return read_yaml(Experiment, name, text, {}, error=ExperimentError)[0]
