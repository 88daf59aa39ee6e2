"""An experiment of a paper as data: the settings, what is varied, what is run and measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semistream.algorithms import algorithms
from semistream.pipeline.file import values as legal
from semistream.pipeline.file.problems import Mistakes, Problem, collect, unknown
from semistream.pipeline.file.sections import Section, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from semistream.pipeline.file.node import Node, Scalar

__all__ = ["KINDS", "VARIED", "Data", "Experiment", "Lines", "Paper", "Series"]

KINDS = {
    "rate": "stream rows a second",
    "validation": "stream rows a second, predicted and measured",
    "curve": "stream rows a second over a part of the memory, by model and by measurement",
    "optimum": "the part of the memory at which the rate is highest",
    "reads": "seconds to read a page",
    "pinned": "stream rows answered by pages that stay, in 4,000 iterations",
    "least": "the least memory for a rate of arrival",
    "nodes": "stream rows a second of processes side by side",
    "tasks": "stream rows a second of tasks on Spark",
}
VARIED: dict[str, Callable[[Node], float]] = {
    "rows": legal.count(),
    "memory": legal.size,
    "share": legal.number(0.0001, 1),
    "exponent": legal.number(0, 2),
    "buffer": legal.size,
    "k": legal.count(),
    "l": legal.count(),
    "rate": legal.count(),
    "tasks": legal.count(),
}
_KNOBS = frozenset({"buffer", "k", "l"})
_NODES = 2  # processes of a line, if it has several


@dataclass(frozen=True, kw_only=True)
class Data(Section):
    """Master and stream: sizes, skew, where they come from."""

    source: str = setting(legal.choice(("zipf", "tpch", "weather")))
    rows: int = setting(legal.count())
    row_bytes: int = setting(legal.count(), 120)
    stream_bytes: int = setting(legal.count(), 20)
    exponent: float = setting(legal.number(0, 2), 1.0)
    sorted: bool = setting(legal.flag, False)
    """Whether R is sorted by access frequency."""

    @property
    def bytes(self) -> int:
        """The size of R."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class Series:
    """One line of a figure: an algorithm and its options."""

    algorithm: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    unique: bool = False
    """Whether it joins with R without duplicates, as the papers' CACHEJOIN does."""
    processes: int = 1
    """How many share R, the stream and the memory."""


@dataclass(frozen=True)
class Lines:
    """A second setting that is varied: a line of the figure for each of its values."""

    vary: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Experiment(Section):
    """A figure of a paper: what is run for it."""

    figure: str = setting(legal.text)
    section: str = setting(legal.text)
    title: str = setting(legal.text)
    kind: str = setting(legal.choice(tuple(KINDS)))  # type: ignore[misc] # a section's is its own
    data: Data
    memory: int | None = setting(legal.size, None)
    share: float | None = setting(legal.number(0.0001, 1), None)
    rate: int | None = setting(legal.count(), None)
    vary: str = setting(legal.choice(tuple(VARIED)))
    values: tuple[float, ...]
    lines: Lines | None = None
    series: Mapping[str, Series]
    note: str = setting(legal.text, "")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell settings that do not go together."""
        varied = {self.vary, self.lines.vary if self.lines else ""}
        given = {n for n in ("memory", "share") if getattr(self, n) is not None} | varied
        if self.kind != "least" and not given & {"memory", "share"}:
            yield "memory", "is missing; give memory or share, or vary one of them"
        for name in ("memory", "share", "rate"):
            if name in varied and getattr(self, name) is not None:
                yield name, "is varied; leave it out"
        if self.kind == "least" and "rate" not in varied and self.rate is None:
            yield "rate", "is missing; give it, or vary it"
        if self.kind in {"curve", "reads"} and self.vary not in _KNOBS:
            yield "vary", f"must be one of {', '.join(sorted(_KNOBS))} with kind: {self.kind}"
        if (self.kind == "tasks") != (self.vary == "tasks"):
            yield "vary", "tasks is for the kind tasks, which has no other"
        if self.kind not in {"curve", "reads"} and self.vary in _KNOBS:
            yield "vary", f"{self.vary} is for the kinds curve and reads, not {self.kind}"
        for name, line in self.series.items():
            plain = self.kind == "nodes" and not line.options and not line.unique
            if line.processes != 1 and not (line.processes == _NODES and plain):
                yield "series", f"{name}: processes is 1, or 2 with kind: nodes and no other option"


@dataclass(frozen=True, kw_only=True)
class Paper(Section):
    """A paper: what it is, on what it was measured, its figures in order."""

    name: str = setting(legal.text)
    citation: str = setting(legal.text)
    machine: str = setting(legal.text)
    order: tuple[str, ...] = setting(legal.names())


def read_varied(vary: str) -> Callable[[Node], tuple[float, ...]]:
    """Read the values of what is varied, in ascending order."""

    def read(node: Node) -> tuple[float, ...]:
        if not isinstance(node.value, tuple) or not node.value:
            raise node.mistake(f"must be a list of values of {vary}, not {node.shown}")
        found, problems = [], list[Problem]()
        for item in node.value:
            with collect(problems):
                found.append(VARIED[vary](item))
        if problems:
            raise Mistakes(problems)
        if sorted(set(found)) != found:
            raise node.mistake("must be in ascending order, each value once")
        return tuple(found)

    return read


def read_series(node: Node) -> dict[str, Series]:
    """Read the lines of a figure: names of algorithms, or a mapping with options of each."""
    if not isinstance(node.value, dict):
        names = legal.names(legal.choice(algorithms))(node)
        return {name: Series(name) for name in names}
    problems: list[Problem] = []
    found: dict[str, Series] = {}
    for name, item in node.value.items():
        with collect(problems):
            found[name] = _one(item)
    if problems:
        raise Mistakes(problems)
    return found


def _one(node: Node) -> Series:
    given = legal.mapping(legal.scalar)(node)
    assert isinstance(node.value, dict)  # noqa: S101 - for the type checker
    if "algorithm" not in given:
        raise node.mistake("has no algorithm; give it as {algorithm: meshjoin}")
    name = str(given.pop("algorithm"))
    known = algorithms()
    if name not in known:
        place = node.value["algorithm"]
        raise Mistakes.at(place.mark, unknown(place.where, name, known))
    unique = legal.flag(node.value["unique"]) if given.pop("unique", None) is not None else False
    processes = legal.count()(node.value["processes"]) if "processes" in given else 1
    given.pop("processes", None)
    return Series(name, given, unique, processes)
