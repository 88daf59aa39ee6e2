"""A value of a pipeline file that knows its place in it."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.pipeline.file.problems import Mark, Mistakes

__all__ = ["Node", "Scalar"]

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Node:
    """A value of the file, with its place."""

    where: str
    """How the value is reached, as ``enrich[0].on``."""
    mark: Mark
    key: Mark
    """Where the value's key is; its own place in a list."""
    value: Scalar | tuple[Node, ...] | dict[str, Node]
    text: str = ""
    """A scalar as the file has it: what messages may show, for no variable is replaced."""

    @property
    def shown(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, tuple):
            return "a list"
        if self.value is None:
            return "empty"
        return repr(self.text) if isinstance(self.value, str) else self.text

    def mistake(self, message: str) -> Mistakes:
        """Give the error that this value is wrong: ``message`` follows its name."""
        return Mistakes.at(self.mark, f"{self.where or 'the file'} {message}")
