"""An experiment of a paper as data: the settings, what is varied, what is run and measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from semistream import values
from semistream.algorithms import algorithms
from semistream.pipeline.file.section import Conflicts, Section
from semistream.values import IllegalValueError, Kind, choice, count, names, read_each

if TYPE_CHECKING:
    from pydantic import ValidationInfo

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
VARIED = {
    "rows": count(),
    "memory": values.SIZE,
    "share": values.number(0.0001, 1),
    "exponent": values.number(0, 2),
    "buffer": values.SIZE,
    "k": count(),
    "l": count(),
    "rate": count(),
    "tasks": count(),
}
_KNOBS = frozenset({"buffer", "k", "l"})
_NODES = 2  # processes of a line, if it has several


def _read_values(value: object, info: "ValidationInfo[Any]") -> tuple[float, ...]:
    """Read the values of what is varied, in ascending order."""
    vary = info.data.get("vary", "rows")  # one that is not known is a mistake of its own
    if not isinstance(value, list) or not value:
        raise IllegalValueError.of(f"must be a list of values of {vary}, not {{shown}}")
    points = read_each(enumerate(value), VARIED[vary].read)
    if sorted(set(points)) != points:
        raise IllegalValueError.of("must be in ascending order, each value once")
    return tuple(points)


def _read_series(value: object) -> dict[str, "Series"]:
    """Read the lines of a figure: names of algorithms, or a mapping with options of each."""
    if not isinstance(value, dict):
        return {name: Series(name) for name in names(choice(algorithms)).read(value)}
    return dict(zip(value, read_each(value.items(), _read_line), strict=True))


def _read_line(value: object) -> "Series":
    options = values.mapping(values.SCALAR).read(value)
    if "algorithm" not in options:
        raise IllegalValueError.of("has no algorithm; give it as {algorithm: meshjoin}")
    kinds = {"algorithm": choice(algorithms), "unique": values.FLAG, "processes": count()}
    own = {name: options.pop(name) for name in kinds if name in options}
    read = {name: read_each([(name, item)], kinds[name].read)[0] for name, item in own.items()}
    return Series(**read, options=options)


Values = Annotated[tuple[float, ...], Kind(_read_values, dict, by_context=True)]
Vary = Annotated[str, choice(VARIED)]
Text = Annotated[str, values.TEXT]
Count = Annotated[int, count()]


@dataclass(frozen=True, kw_only=True)
class Data(Section):
    """Master and stream: sizes, skew, where they come from."""

    source: Annotated[str, choice(("zipf", "tpch", "weather"))]
    rows: Count
    row_bytes: Count = 120
    stream_bytes: Count = 20
    exponent: Annotated[float, values.number(0, 2)] = 1.0
    sorted: Annotated[bool, values.FLAG] = False
    """Whether R is sorted by access frequency."""

    @property
    def bytes(self) -> int:
        """The size of R."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class Series:
    """One line of a figure: an algorithm and its options."""

    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)
    unique: bool = False
    """Whether it joins with R without duplicates, as the papers' CACHEJOIN does."""
    processes: int = 1
    """How many share R, the stream and the memory."""


@dataclass(frozen=True, kw_only=True)
class Lines(Section):
    """A second setting that is varied: a line of the figure for each of its values."""

    vary: Vary
    values: Values


@dataclass(frozen=True, kw_only=True)
class Experiment(Section):
    """A figure of a paper: what is run for it."""

    figure: Text
    section: Text
    title: Text
    kind: Annotated[str, choice(KINDS)]
    data: Data
    memory: Annotated[int | None, values.SIZE] = None
    share: Annotated[float | None, values.number(0.0001, 1)] = None
    rate: Annotated[int | None, count()] = None
    vary: Vary
    values: Values
    lines: Lines | None = None
    series: Annotated[Mapping[str, Series], Kind(_read_series, dict)]
    note: Text = ""

    def conflicts(self) -> Conflicts:
        """Yield settings that do not go together."""
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

    name: Text
    citation: Text
    machine: Text
    order: Annotated[tuple[str, ...], names()]
