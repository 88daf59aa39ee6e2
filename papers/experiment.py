"""The papers' experiments as data: settings, what is varied, what is run and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from semistream.algorithms import algorithms
from semistream.errors import OptionError, SemistreamError
from semistream.units import parse_bytes, parse_count

T = TypeVar("T")
PAPERS = ("meshjoin", "x-hybridjoin", "tuned-x-hybridjoin", "pcsrj", "moij")
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
Count = Annotated[int, BeforeValidator(parse_count), Field(ge=1)]
Size = Annotated[int, BeforeValidator(parse_bytes), Field(ge=1)]
Share = Annotated[float, Field(ge=0.0001, le=1)]
Exponent = Annotated[float, Field(ge=0, le=2)]
VARIED: dict[str, Any] = {
    "rows": Count,
    "memory": Size,
    "share": Share,
    "exponent": Exponent,
    "buffer": Size,
    "k": Count,
    "l": Count,
    "rate": Count,
    "tasks": Count,
}
_KNOBS = frozenset({"buffer", "k", "l"})
_NODES = 2  # processes of a line, if it has several
_STRICT = ConfigDict(extra="forbid")


class ExperimentError(SemistreamError, ValueError):
    """A file of an experiment or of claims has mistakes; the message lists all of them."""


def one_of(what: str, known: Callable[[], list[str]]) -> BeforeValidator:
    """Accept only these names; the error suggests the nearest one."""

    def check(name: str) -> str:
        if name not in known():
            raise OptionError.unknown(what, name, known())
        return name

    return BeforeValidator(check)


def _check_values(given: Any) -> Any:
    """Read the values of what is varied by its kind; they must ascend."""
    vary = given.get("vary") if isinstance(given, dict) else None
    if vary in VARIED and "values" in given:
        one = TypeAdapter(VARIED[vary])
        values = tuple(one.validate_python(value) for value in given["values"])
        if list(values) != sorted(set(values)) or not values:
            msg = f"values {list(values)} must be in ascending order, each once"
            raise ValueError(msg)
        return given | {"values": values}
    return given


Varied = Annotated[str, one_of("vary", lambda: list(VARIED))]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Data:
    """Master and stream: sizes, skew, where they come from."""

    source: Literal["zipf", "tpch", "weather"]
    rows: Count
    row_bytes: Count = 120
    stream_bytes: Count = 20
    exponent: Exponent = 1.0
    sorted: bool = False
    """Whether R is sorted by access frequency."""

    @property
    def bytes(self) -> int:
        """The size of R."""
        return self.rows * self.row_bytes


@dataclass(frozen=True, config=_STRICT)
class Series:
    """One line of a figure: an algorithm and its options."""

    algorithm: Annotated[str, one_of("algorithm", lambda: list(algorithms()))]
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    unique: bool = False
    """Whether it joins with R without duplicates, as the papers' CACHEJOIN does."""
    processes: int = 1
    """How many share R, the stream and the memory."""

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, given: Any) -> Any:
        own = {"algorithm", "options", "unique", "processes"}
        if not isinstance(given, dict) or "options" in given:
            return given
        options = {name: value for name, value in given.items() if name not in own}
        return {name: given[name] for name in given if name in own} | {"options": options}


@dataclass(frozen=True, config=_STRICT)
class Lines:
    """A second setting that is varied: a line of the figure for each of its values."""

    vary: Varied
    values: tuple[float, ...]
    _read = model_validator(mode="before")(_check_values)


def _named_lines(given: Any) -> Any:
    """Let a list of algorithms stand for lines of these names."""
    return {name: {"algorithm": name} for name in given} if isinstance(given, list) else given


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Experiment:
    """A figure of a paper: what is run for it."""

    figure: str
    section: str
    title: str
    kind: Annotated[str, one_of("kind", lambda: list(KINDS))]
    data: Data
    memory: Size | None = None
    share: Share | None = None
    rate: Count | None = None
    vary: Varied
    values: tuple[int | float, ...]
    lines: Lines | None = None
    series: Annotated[dict[str, Series], BeforeValidator(_named_lines)]
    note: str = ""
    _read = model_validator(mode="before")(_check_values)

    @model_validator(mode="after")
    def _check(self) -> Experiment:
        if conflicts := list(self._conflicts()):
            raise ValueError("; ".join(conflicts))
        return self

    def _conflicts(self) -> Iterator[str]:
        """Yield settings that do not go together."""
        varied = {self.vary, self.lines.vary if self.lines else ""}
        given = {n for n in ("memory", "share") if getattr(self, n) is not None} | varied
        if self.kind != "least" and not given & {"memory", "share"}:
            yield "memory is missing; give memory or share, or vary one of them"
        for name in ("memory", "share", "rate"):
            if name in varied and getattr(self, name) is not None:
                yield f"{name} is varied; leave it out"
        if self.kind == "least" and "rate" not in varied and self.rate is None:
            yield "rate is missing; give it, or vary it"
        if (self.kind in {"curve", "reads"}) != (self.vary in _KNOBS):
            knobs = ", ".join(sorted(_KNOBS))
            yield f"vary {self.vary}: the kinds curve and reads vary one of {knobs}, others do not"
        if (self.kind == "tasks") != (self.vary == "tasks"):
            yield "vary tasks is for the kind tasks, which has no other"
        for name, line in self.series.items():
            plain = self.kind == "nodes" and not line.options and not line.unique
            if line.processes != 1 and not (line.processes == _NODES and plain):
                yield f"series {name}: processes is 1, or 2 with kind: nodes and no other option"


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Paper:
    """A paper: what it is, on what it was measured, its figures in order."""

    name: str
    citation: str
    machine: str
    order: tuple[str, ...]


def folder() -> Traversable:
    """Return the folder of the papers' files: data of this package."""
    return files("papers")


def papers() -> dict[str, Paper]:
    """Return the papers by name, in the order in which they are shown."""
    return {name: read(folder() / name / "paper.yaml", Paper) for name in PAPERS}


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
        raise OptionError.unknown("experiment", only, [*known, *PAPERS])
    return {name: read(folder() / f"{name}.yaml", Experiment) for name in chosen}


def read(file: Traversable, kind: type[T]) -> T:
    """Read a YAML file.

    Raises
    ------
    ExperimentError
        The file has mistakes: all of them.
    """
    return validate(yaml.safe_load(file.read_text(encoding="utf-8")), kind, file.name)


def validate(content: Any, kind: type[T], name: str) -> T:
    """Check the content of a file, or of a part of it; raise with all mistakes."""
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        mistakes = [(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
        lines = (f"{name}: {place}: {message}" for place, message in mistakes)
        raise ExperimentError("\n".join(lines)) from None
