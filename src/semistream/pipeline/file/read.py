"""Reading a pipeline file: every mistake in it is found before anything starts."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from semistream.errors import OptionError
from semistream.pipeline.file import values
from semistream.pipeline.file.ends import SINKS, SOURCES, GeneratorSource, KafkaSink, KafkaSource
from semistream.pipeline.file.model import Pipeline
from semistream.pipeline.file.problems import Mistakes, PipelineError, Problem, unknown
from semistream.pipeline.file.sections import Columns, Enrichment, Quarantine, Section, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from semistream.pipeline.file.node import Node
    from semistream.pipeline.file.problems import Mark

__all__ = ["read_pipeline"]

S = TypeVar("S", bound=Section)
T = TypeVar("T")

_KEYS = (
    *("name", "source", "enrich", "columns", "sink", "quarantine", "waiting"),
    *("trigger", "checkpoint", "spark"),
)
_REQUIRED = ("source", "sink")
# So that a replayed record can be told from another one.
_ORIGIN = ("topic", "partition", "offset")


def read_pipeline(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Pipeline:
    """Read a pipeline file.

    Paths in it are relative to the file's folder.

    Raises
    ------
    PipelineError
        The file has mistakes: all of them, each with its line, the legal choices and the nearest
        right word.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "p.yaml")
    >>> _ = path.write_text('source: {kind: rate}' + chr(10) + 'sink: {kind: consol}')
    >>> read_pipeline(path)
    Traceback (most recent call last):
    semistream.pipeline.file.problems.PipelineError: ...sink.kind 'consol' is not known; ...
    """
    from semistream.pipeline.file.text import parse  # noqa: PLC0415 - the extra may be missing

    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file}: the pipeline file can't be read: {error}"
        raise OptionError(msg) from None
    try:
        return _Reader(file, *parse(text, environment)).pipeline()
    except Mistakes as mistakes:
        raise PipelineError(str(path), mistakes.problems) from None


class _Reader:
    """Reads the sections of one file, and collects what is wrong."""

    def __init__(self, file: Path, root: Node, problems: Sequence[Problem]) -> None:
        self._file = file.absolute()
        self._root = root
        self._known = problems
        self._problems: list[Problem] = []

    def pipeline(self) -> Pipeline:
        top = self._mapping(self._root, _KEYS, _REQUIRED)
        source = self._any(top.get("source"), lambda node: self._kind(node, SOURCES))
        steps = self._any(top.get("enrich"), self._enrichments) or ()
        columns = self._any(top.get("columns"), lambda node: self._section(node, Columns))
        sink = self._any(top.get("sink"), lambda node: self._kind(node, SINKS))
        quarantine = self._any(top.get("quarantine"), lambda node: self._quarantine(node, steps))
        waiting = self._any(top.get("waiting"), lambda node: self._waiting(node, steps))
        name = self._any(top.get("name"), values.text) or self._file.stem
        trigger = self._any(top.get("trigger"), values.interval)
        checkpoint = self._any(top.get("checkpoint"), values.text)
        spark = self._any(top.get("spark"), values.mapping(values.scalar)) or {}
        if self._known or self._problems or source is None or sink is None:
            # A value that has not been read, for want of a variable, is not wrong twice.
            places = {problem.mark for problem in self._known}
            more = (problem for problem in self._problems if problem.mark not in places)
            raise Mistakes([*self._known, *more])
        return Pipeline(
            self._file,
            name,
            _with_origin(source, sink),
            tuple(step.patient((waiting or Waiting()).delay) for step in steps),
            columns or Columns(),
            sink,
            trigger,
            self._absolute(checkpoint) if checkpoint else self._beside(sink, name, "checkpoint"),
            {key: _conf(value) for key, value in spark.items()},
            quarantine.path if quarantine else self._beside(sink, name, "quarantine"),
            self._placed(waiting or Waiting(), self._beside(sink, name, "waiting")),
            _marks(self._root),
        )

    def _any(self, node: Node | None, read: Callable[[Node], T]) -> T | None:
        if node is None:
            return None
        try:
            return read(node)
        except Mistakes as mistakes:
            self._problems.extend(mistakes.problems)
            return None

    def _mapping(
        self, node: Node, known: Collection[str], required: Sequence[str]
    ) -> dict[str, Node]:
        """Check the keys of a mapping; mistakes in its values are left to others."""
        if not isinstance(node.value, dict):
            raise node.mistake(f"must be a mapping with {', '.join(known)}; it is {node.shown}")
        for key, value in node.value.items():
            if key not in known:
                what = f"{node.where}: key" if node.where else "key"
                self._problems.append(Problem(value.key, unknown(what, key, known)))
        for key in required:
            if key not in node.value:
                where = f"{node.where}.{key}" if node.where else key
                self._problems.append(Problem(node.key, f"{where} is missing"))
        return node.value

    def _kind(self, node: Node, kinds: Mapping[str, type[Any]]) -> Any:  # noqa: ANN401 - one of them
        if not isinstance(node.value, dict) or "kind" not in node.value:
            raise Mistakes.at(
                node.key, f"{node.where}.kind is missing; choose one of: {', '.join(sorted(kinds))}"
            )
        kind = values.choice(tuple(kinds))(node.value["kind"])
        return self._section(node, kinds[kind])

    def _section(self, node: Node, section: type[S]) -> S | None:
        """Read a section; None if it has mistakes, which are collected."""
        before = len(self._problems)
        known = {each.name: each for each in fields(section)}
        kind = ("kind",) if section.kind else ()
        required = [f.name for f in known.values() if _is_required(f)]
        given = self._mapping(node, (*kind, *known), required)
        read = {
            name: self._any(given[name], known[name].metadata["read"])
            for name in known
            if name in given
        }
        if len(self._problems) > before:
            return None
        paths = {name for name in read if known[name].metadata["path"]}
        made = section(**read | {name: self._absolute(str(read[name])) for name in paths})
        for name, message in made.conflicts():
            place = given.get(name, node)
            mark = place.mark if name in given else node.key
            self._problems.append(Problem(mark, f"{node.where}.{name} {message}"))
        self._problems.extend(_workload(made, node))
        return made

    def _enrichments(self, node: Node) -> tuple[Enrichment, ...]:
        items = node.value if isinstance(node.value, tuple) else (node,)
        made = [self._any(item, lambda item: self._section(item, Enrichment)) for item in items]
        steps: list[Enrichment] = []
        for item, step in zip(items, made, strict=True):
            if step is not None:
                steps.append(self._named(step, item, [other.name for other in steps]))
        return tuple(steps)

    def _named(self, step: Enrichment, node: Node, taken: Sequence[str]) -> Enrichment:
        if step.name:
            if step.name in taken:
                self._problems.append(
                    Problem(node.mark, f"{node.where}.name {step.name!r} is given twice")
                )
            return step
        place = step.table.replace(".", "/") if step.live else step.master.rstrip("/")
        base = name = place.rpartition("/")[2]
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        return replace(step, name=name)

    def _absolute(self, path: str) -> str:
        if "://" in path or path.startswith("file:"):
            return path
        return str(self._file.parent / Path(path).expanduser())

    def _quarantine(self, node: Node, steps: Sequence[Enrichment]) -> Quarantine | None:
        made = self._section(node, Quarantine)
        if not self._problems and not any(step.splits for step in steps):
            self._problems.append(
                Problem(
                    node.key,
                    "quarantine has no use: no enrichment has on_missing: quarantine or wait",
                )
            )
        return made

    def _waiting(self, node: Node, steps: Sequence[Enrichment]) -> Waiting | None:
        made = self._section(node, Waiting)
        if not self._problems and not any(step.on_missing == "wait" for step in steps):
            told = "waiting has no use: no enrichment has on_missing: wait"
            self._problems.append(Problem(node.key, told))
        return made

    def _placed(self, waiting: Waiting, path: str) -> Waiting:
        return waiting if waiting.path else replace(waiting, path=path)

    def _beside(self, sink: Any, name: str, what: str) -> str:  # noqa: ANN401 - any of the sinks
        """Give a folder of its own beside the sink's, or beside the file."""
        path = getattr(sink, "path", None)
        return f"{path.rstrip('/')}.{what}" if path else self._absolute(f"{name}.{what}")


def _is_required(field: Any) -> bool:  # noqa: ANN401 - dataclasses.Field is generic in the value
    return field.default is MISSING and field.default_factory is MISSING


def _conf(value: object) -> str:
    """Write a value as Spark's configuration has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _workload(made: Section, node: Node) -> list[Problem]:
    """Give what the generator itself says against its arguments."""
    if isinstance(made, GeneratorSource):
        try:
            _ = made.stream
        except OptionError as error:
            return [Problem(node.key, f"{node.where}: {error}")]
    return []


def _with_origin(source: Any, sink: Any) -> Any:  # noqa: ANN401 - any source, any sink
    if isinstance(source, KafkaSource) and source.metadata is None:
        return replace(source, metadata=_ORIGIN if isinstance(sink, KafkaSink) else ())
    return source


def _marks(node: Node) -> dict[str, Mark]:
    found = {node.where: node.mark}
    # A single enrichment may stand without a list; checks number it as if it were in one.
    if node.where.startswith("enrich."):
        found[f"enrich[0]{node.where.removeprefix('enrich')}"] = node.mark
    value = tuple(node.value.values()) if isinstance(node.value, dict) else node.value
    for child in value if isinstance(value, tuple) else ():
        found |= _marks(child)
    return found
