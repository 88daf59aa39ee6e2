"""Mistakes in a YAML file: where each is, and all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.errors import SemistreamError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Mark", "PipelineError", "Problem"]


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a file; lines and columns count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake and its place."""

    mark: Mark
    message: str


class PipelineError(SemistreamError, ValueError):
    """A pipeline file has mistakes; the message lists all of them, each with its line.

    Examples
    --------
    >>> print(PipelineError("sales.yaml", [Problem(Mark(7, 3), "sink is missing")]))
    sales.yaml:7:3: sink is missing
    """

    def __init__(self, path: str, problems: Iterable[Problem]) -> None:
        self.path = path
        self.problems = tuple(sorted(set(problems)))
        super().__init__(path, self.problems)

    def __str__(self) -> str:
        return "\n".join(
            f"{self.path}:{problem.mark.line}:{problem.mark.column}: {problem.message}"
            for problem in self.problems
        )
