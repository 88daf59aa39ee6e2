"""Mistakes in a pipeline file: where each is, and all of them at once."""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.errors import OptionError, SemistreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Mark", "Mistakes", "PipelineError", "Problem", "collect", "nearest", "unknown"]


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


class Mistakes(Exception):  # noqa: N818 - an answer to whoever reads a value, not a user's error
    """What is wrong with a value; whoever reads the file collects them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__()
        self.problems = tuple(problems)

    @classmethod
    def at(cls, mark: Mark, message: str) -> Mistakes:
        """Make one of a single problem."""
        return cls([Problem(mark, message)])


class PipelineError(SemistreamError, ValueError):
    """A pipeline file has mistakes; the message lists all of them, each with its line.

    Examples
    --------
    >>> print(PipelineError("sales.yaml", [Problem(Mark(7, 3), "sink is missing")]))
    sales.yaml:7:3: sink is missing
    """

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = tuple(sorted(set(problems)))
        super().__init__(path, problems)

    def __str__(self) -> str:
        return "\n".join(
            f"{self.path}:{problem.mark.line}:{problem.mark.column}: {problem.message}"
            for problem in self.problems
        )


@contextmanager
def collect(problems: list[Problem]) -> Iterator[None]:
    """Add the mistakes that are met to a list, and go on."""
    try:
        yield
    except Mistakes as mistakes:
        problems.extend(mistakes.problems)


def nearest(word: object, words: Iterable[str]) -> str:
    """Give the question whether the nearest right word was meant, or nothing."""
    near = difflib.get_close_matches(str(word), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown(what: str, value: object, choices: Iterable[str]) -> str:
    """Give the message for a word that is not among ``choices``."""
    return str(OptionError.unknown(what, value, choices))
