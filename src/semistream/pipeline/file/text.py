"""YAML as a tree in which every value knows its place in the file.

Words such as ``on`` and ``yes`` are text, as in YAML 1.2: only ``true`` and ``false`` are flags.
``${NAME}`` in a value stands for an environment variable, ``${NAME:-text}`` for one with a default,
and ``$${`` for the characters themselves. Aliases (``*name``) are refused: a few lines of them can
stand for billions of values.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import yaml

from semistream.pipeline.file.node import Node
from semistream.pipeline.file.problems import Mark, Mistakes, Problem, collect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.pipeline.file.node import Scalar

__all__ = ["parse"]

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_DEPTH = 20  # what reads YAML calls itself at each level; a pipeline has five
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]{,99})")  # Python reads no more than some thousand digits
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


def parse(
    text: str, environment: Mapping[str, str] = os.environ
) -> tuple[Node, tuple[Problem, ...]]:
    """Read a YAML text; give it with the mistakes that do not hinder to go on.

    What is not YAML at all is raised, as `Mistakes`.

    Examples
    --------
    >>> tree, problems = parse("on: {id: key}")
    >>> node = tree.value["on"]
    >>> node.where, node.mark, node.value["id"].value
    ('on', Mark(line=1, column=5), 'key')
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise Mistakes([_syntax(error)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"the file is not text: {error.reason}"
        raise Mistakes.at(Mark(line, 1), reason) from None
    if root is None:
        raise Mistakes.at(Mark(), "the file is empty")
    reader = _Reader(environment)
    tree = reader.node(root, "", _mark(root))
    return tree, tuple(reader.problems)


class _Loader(yaml.SafeLoader):
    """Composes a tree in which no node is in two places, and none is too deep."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the node that begins here; called for each, and for those within it."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = _mark(event)
        if isinstance(event, yaml.AliasEvent):
            name = event.anchor
            raise Mistakes.at(mark, f"the alias *{name} is not allowed; write the value out")
        if self._depth == _DEPTH:
            raise Mistakes.at(mark, f"this is nested deeper than {_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _syntax(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Mark(mark.line + 1, mark.column + 1) if mark else Mark()
    context = f" ({error.context})" if error.context else ""
    problem = str(error.problem)
    hint = "; indent with spaces" if "'\\t'" in problem else ""
    hint += "; inside braces write '${…}' in quotes" if "but got '{'" in problem else ""
    return Problem(place, f"this is not YAML: {problem}{context}{hint}")


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


class _Reader:
    """Turns YAML's nodes into ours; collects what is wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[Problem] = []

    def node(self, node: yaml.Node, where: str, key: Mark) -> Node:
        mark = _mark(node)
        if isinstance(node, yaml.MappingNode):
            return Node(where, mark, key, self._mapping(node, where))
        if isinstance(node, yaml.SequenceNode):
            items = (
                self.node(item, f"{where}[{i}]", _mark(item)) for i, item in enumerate(node.value)
            )
            return Node(where, mark, key, tuple(items))
        return Node(where, mark, key, self._scalar(node, where), str(node.value))

    def _mapping(self, node: yaml.MappingNode, where: str) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key, value in node.value:
            mark = _mark(key)
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem(mark, f"{where or 'the file'}: a key must be a word"))
                continue
            name = key.value
            path = f"{where}.{name}" if where else name
            if name in found:
                first = found[name].key.line
                self.problems.append(Problem(mark, f"{path} is given twice, first in line {first}"))
                continue
            found[name] = self.node(value, path, mark)
        return found

    def _scalar(self, node: yaml.Node, where: str) -> Scalar:
        text = str(node.value)
        with collect(self.problems):
            text = _substitute(text, self._environment, Node(where, _mark(node), _mark(node), text))
        quoted = isinstance(node, yaml.ScalarNode) and node.style
        return text if quoted else _plain(text)


def _plain(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _substitute(text: str, environment: Mapping[str, str], node: Node) -> str:
    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name is None:
            return "${"
        given = environment.get(name, default)
        if given is None:
            raise node.mistake(
                f"needs the environment variable {name}, which is not set; set it, or give a "
                f"default, as ${{{name}:-text}}"
            )
        return str(given)

    return _VARIABLE.sub(value, text)
