"""YAML as plain values, and where each of them is in its file.

Words such as ``on`` and ``yes`` are text, as in YAML 1.2: only ``true`` and ``false`` are flags.
``${NAME}`` in a value stands for an environment variable, ``${NAME:-text}`` for one with a default,
and ``$${`` for the characters themselves. Aliases (``*name``) are refused: a few lines of them can
stand for billions of values.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from semistream.pipeline.file.errors import Mark, PipelineError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.values import ValuePath

__all__ = ["Document", "Place", "parse", "where"]

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_DEPTH = 20  # what reads YAML calls itself at each level; a pipeline has five
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]{,99})")  # Python reads no more than some thousand digits
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


@dataclass(frozen=True)
class Place:
    """Where a value is, and how messages show it."""

    mark: Mark
    key: Mark
    """Where the value's key is; its own place in a list."""
    shown: str
    """The value as the file has it: no variable is replaced."""


@dataclass
class Document:
    """What a YAML text says."""

    data: Any = None
    places: dict[ValuePath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    """Mistakes that do not hinder to go on."""

    def place(self, path: ValuePath) -> Place:
        """Return the place of a value, or of what is around it if it is not given."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def where(path: ValuePath) -> str:
    """Return how a message names a value.

    Examples
    --------
    >>> where(("enrich", 0, "on"))
    'enrich[0].on'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def parse(text: str, environment: Mapping[str, str] = os.environ) -> Document:
    """Read a YAML text; raise `PipelineError` if it is none.

    Examples
    --------
    >>> document = parse("on: {id: key}")
    >>> document.data, document.places["on", "id"].mark
    ({'on': {'id': 'key'}}, Mark(line=1, column=10))
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Mark(mark.line + 1, mark.column + 1) if mark else Mark()
        context = f" ({error.context})" if error.context else ""
        hint = "; indent with spaces" if "'\\t'" in str(error.problem) else ""
        hint += "; inside braces write '${…}' in quotes" if "got '{'" in str(error.problem) else ""
        raise _error(place, f"this is not YAML: {error.problem}{context}{hint}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _error(Mark(line), f"the file is not text: {error.reason}") from None
    if root is None:
        raise _error(Mark(), "the file is empty")
    document = Document()
    document.data = _value(document, environment, root, (), _mark(root))
    return document


class _Loader(yaml.SafeLoader):
    """Composes a tree in which no node is in two places, and none is too deep."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the node that begins here; called for each, and for those within it."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = _mark(event)
        if isinstance(event, yaml.AliasEvent):
            raise _error(mark, f"the alias *{event.anchor} is not allowed; write the value out")
        if self._depth == _DEPTH:
            raise _error(mark, f"this is nested deeper than {_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _error(mark: Mark, message: str) -> PipelineError:
    """Return the error of a text whose file the caller knows."""
    return PipelineError("", [Problem(mark, message)])


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _value(
    document: Document, environment: Mapping[str, str], node: yaml.Node, path: ValuePath, key: Mark
) -> Any:  # noqa: ANN401 - whatever the file has
    """Return a node's value; add its place, and those within it, to the document."""
    mark = _mark(node)
    if isinstance(node, yaml.SequenceNode):
        document.places[path] = Place(mark, key, "a list")
        return [
            _value(document, environment, item, (*path, i), _mark(item))
            for i, item in enumerate(node.value)
        ]
    if isinstance(node, yaml.MappingNode):
        document.places[path] = Place(mark, key, "a mapping")
        items = _unique_keys(document, node, path)
        return {
            name: _value(document, environment, value, (*path, name), place)
            for name, (place, value) in items.items()
        }
    text = str(node.value)
    is_text = bool(isinstance(node, yaml.ScalarNode) and node.style)  # for it is in quotes
    plain = _plain(text)
    shown = repr(text) if is_text or isinstance(plain, str) else "empty" if plain is None else text
    document.places[path] = Place(mark, key, shown)
    for variable in _VARIABLE.finditer(text):
        if variable[1] and variable[2] is None and variable[1] not in environment:
            message = (
                f"{where(path)} needs the environment variable {variable[1]}, which is not set; "
                f"set it, or give a default, as ${{{variable[1]}:-text}}"
            )
            document.problems.append(Problem(mark, message))
            return text
    text = _VARIABLE.sub(
        lambda found: environment.get(found[1], found[2]) if found[1] else "${", text
    )
    return text if is_text else _plain(text)


def _unique_keys(
    document: Document, node: yaml.MappingNode, path: ValuePath
) -> dict[str, tuple[Mark, yaml.Node]]:
    """Return a mapping's values with the places of their keys."""
    items: dict[str, tuple[Mark, yaml.Node]] = {}
    for key, value in node.value:
        mark = _mark(key)
        if not isinstance(key, yaml.ScalarNode):
            message = f"{where(path) or 'the file'}: a key must be a word"
            document.problems.append(Problem(mark, message))
        elif key.value in items:
            first = items[key.value][0].line
            message = f"{where((*path, key.value))} is given twice, first in line {first}"
            document.problems.append(Problem(mark, message))
        else:
            items[key.value] = mark, value
    return items


def _plain(text: str) -> str | int | float | bool | None:
    """Return the value of a word that is not in quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
