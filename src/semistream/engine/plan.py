"""The plan: how a memory budget is split among the parts of a join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from semistream.arrow.gather import copies
from semistream.arrow.page_directory import PageDirectory
from semistream.engine.cache import CacheCost
from semistream.engine.observer import Observer
from semistream.engine.output import gathered_schema, output_row_bytes
from semistream.engine.window import RowCost
from semistream.errors import OptionError
from semistream.master.files.filter import KeyFilter
from semistream.units import elapsed, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.spec import JoinSpec

__all__ = [
    "Components",
    "HostMemory",
    "MemoryUse",
    "Plan",
    "Runtime",
    "Settings",
    "Task",
    "TooSmall",
    "in_steps",
]

_LEAST_WINDOW_ROWS = 64  # a budget that leaves less is refused
_LARGEST_OUTPUT = 16 << 20  # bytes, however large the budget
_MOST_OUTPUT_ROWS = 1 << 16  # of one kernel call: their indices take 28 bytes a row
_STEP = 64  # bytes
_MOST_RUN = 4  # pages of a disk buffer matched in one call: each has a line of the directory


def in_steps(memory: int) -> int:
    """Return a budget rounded down to whole steps, the unit of planning.

    Components are rounded to bytes, each by itself: a single byte more could leave less for the
    window, and be too small where a byte less is not. A step more is always more.

    Examples
    --------
    >>> in_steps(10_080), in_steps(10_100)
    (10048, 10048)
    """
    return memory // _STEP * _STEP


class TooSmall(Exception):  # noqa: N818 - an answer to whoever plans, not an error of a user
    """The budget leaves no window beside these components."""


class MemoryUse(dict[str, int]):
    """Bytes by component; ``total`` is their sum.

    Examples
    --------
    >>> MemoryUse(window=100, output=20).total
    120
    """

    @property
    def total(self) -> int:
        """All bytes together."""
        return sum(self.values())

    @property
    def host(self) -> int:
        """Bytes that all joins on this host hold together, each of which counts them."""
        return sum(size for name, size in self.items() if name.startswith("host "))

    @property
    def private(self) -> int:
        """Bytes that this join holds by itself."""
        return self.total - self.host


class _Record(Mapping[str, Any]):
    """A frozen dataclass that is a read-only mapping of its fields, too: to print, to store."""

    _unset: ClassVar[int | None]
    """The value of a field that the mapping does not list."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of the field's type
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        own = fields(self)  # type: ignore[arg-type] # subclasses are dataclasses
        return (f.name for f in own if self[f.name] != self._unset)

    def __contains__(self, name: object) -> bool:
        return any(name == own for own in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Components(_Record):
    """Bytes of each component of a join; 0 where it has none.

    Examples
    --------
    >>> parts = Components(pages=8192, output=1024)
    >>> parts.total, dict(parts)
    (9216, {'pages': 8192, 'output': 1024})
    """

    _unset = 0
    window: int = 0
    pages: int = 0
    """The disk buffer."""
    output: int = 0
    filter: int = 0
    """The key filter."""
    fetch: int = 0
    """A request to a database and its answer."""
    freshness: int = 0
    """Which of the host's rows of a database are fresh."""
    blocks: int = 0
    """Where the buffers of a page run lie."""
    lookup: int = 0
    """Where the buffers of all pages lie."""
    queue: int = 0
    """Rows that wait for those before them."""
    ordered: int = 0
    """Output that is put in order."""
    pinned: int = 0
    """Pages that stay."""
    counters: int = 0
    cache: int = 0
    """Master rows by code; where cache and window divide memory, rows on their way into it."""
    requests: int = 0
    """Which keys wait for a database."""
    spare: int = 0
    """What the algorithm has no use for."""
    router: int = 0
    """Rows on their way to the nodes."""

    @property
    def total(self) -> int:
        """All bytes together."""
        return sum(self.values())


@dataclass(frozen=True)
class Settings(_Record):
    """What a plan decides beside bytes; None where the algorithm has no such setting.

    An algorithm that decides more has a subclass.
    """

    _unset = None
    window_rows: int | None = None
    """Stream rows that the window holds, of the assumed size."""
    buffer_pages: int | None = None
    """Pages in the disk buffer, one if None."""
    run_pages: int | None = None
    """Pages in a page run."""
    output_rows: int | None = None
    """Rows that one call of a kernel may produce."""
    least_window: int | None = None
    """Bytes of the window whatever the algorithm moves; all of them if None."""
    resident: bool | None = None
    """Whether the whole master lies in memory."""


@dataclass(frozen=True)
class Plan:
    """How a budget is split; print it to read it.

    Examples
    --------
    >>> parts, settings = Components(window=2048, output=1024), Settings(window_rows=30)
    >>> print(Plan("hybridjoin", 3072, parts, settings))
    hybridjoin within 3 KB
      window       2 KB  66.7%
      output       1 KB  33.3%
    window_rows: 30
    """

    algorithm: str
    memory: int
    components: Components
    """Bytes of each component; together at most ``memory``."""
    settings: Settings = field(default_factory=Settings)
    """What the algorithm decided beside bytes: rows, pages, k, l, …"""
    tasks: int = 1
    """How many joins have these components; together with the host's at most ``memory``."""
    host: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each component that the joins on a host have together."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", MappingProxyType(dict(self.host)))

    def __str__(self) -> str:
        tasks = f", {self.tasks} tasks with these parts each" if self.tasks > 1 else ""
        lines = [f"{self.algorithm} within {format_bytes(self.memory)}{tasks}"]
        for name, size in (*self.components.items(), *self.host.items()):
            lines.append(f"  {name:<9} {format_bytes(size):>8} {size / self.memory:>6.1%}")
        if self.settings:
            lines.append(", ".join(f"{name}: {value}" for name, value in self.settings.items()))
        return "\n".join(lines)


class HostMemory(Protocol):
    """The memory that joins on one host share, as far as an engine knows it."""

    @property
    def root(self) -> Path:
        """The folder in which they meet."""

    @property
    def freshness(self) -> int:
        """The most bytes that a join needs to tell which of a database's rows are fresh."""

    @property
    def staged(self) -> int:
        """Bytes for rows on their way to what is shared."""

    def open(self) -> Any:  # noqa: ANN401 - the state; what it can do is its opener's to know
        """Open it, made where there is none."""


@dataclass(frozen=True)
class Runtime:
    """What a join runs with beside its plan."""

    clock: Callable[[], float] = elapsed
    """Return the time in seconds."""
    max_wait: float | None = None
    """Seconds that no row waits longer than."""
    observer: Observer = field(default_factory=Observer)


@dataclass(frozen=True)
class Task:
    """What there is to plan for: a join, its budget, and the sizes that follow from them."""

    spec: JoinSpec
    memory: int
    filter_words: int
    """Length of the key filter that is used, in 64-bit words."""
    host: HostMemory | None = None
    """What is held together with other joins on this host, beside ``memory``."""

    @classmethod
    def of(cls, spec: JoinSpec, memory: int, use_filter: bool | None) -> Task:
        """Return the task of a join; without ``use_filter`` a filter has at most 1/16 of it."""
        memory = in_steps(memory)
        stored, values = spec.master.filter_words, spec.master.statistics.values
        if use_filter and not stored:
            msg = (
                "filter=True, but this master has none; build it with filter=True, or leave it out"
            )
            raise OptionError(msg)
        room = 0 if use_filter is False else memory // (2 if use_filter else 16)
        return cls(spec, memory, KeyFilter.affordable(stored, values, room) if stored else 0)

    @property
    def cost(self) -> RowCost:
        """What the window pays for a row."""
        master = self.spec.master
        return RowCost.of(self.spec.plain_stream, master.pages, master.keys.exact)

    @property
    def stream_row(self) -> int:
        """Bytes of a stream row (the papers' v_S), an assumption where they vary."""
        return self.cost.assumed

    @property
    def window_row(self) -> float:
        """Bytes that the window pays for a stream row."""
        return self.cost.fixed + self.cost.factor * self.stream_row + 8

    @property
    def page_bytes(self) -> int:
        """Bytes of the largest part of a page (the papers' v_P)."""
        return self.spec.master.statistics.largest_part

    @property
    def output_row(self) -> float:
        """The most bytes that an output row takes while it is made."""
        return self._output_row(self.spec.master.statistics.widest_row)

    def _output_row(self, right: float) -> float:
        times = copies(gathered_schema(self.spec))
        return output_row_bytes(self.stream_row, right, times)

    @property
    def output_rows(self) -> int:
        """How many rows one call of a kernel may produce."""
        mean = self._output_row(self.spec.master.row_bytes)
        return max(1, min(_MOST_OUTPUT_ROWS, int(self.output_bytes / mean)))

    @property
    def output_bytes(self) -> int:
        """Bytes for output under construction: an eighth of the budget, within limits."""
        return max(self._least_output, min(self.memory // 8, _LARGEST_OUTPUT))

    @property
    def _least_output(self) -> int:
        return int(4 * self.output_row) + 1

    @property
    def cache_cost(self) -> CacheCost:
        """What a cache pays for a master row."""
        return CacheCost.of(self.spec.master.page_schema)

    def cache_bytes(self, wanted: float) -> int:
        """Return the bytes of a cache that is to have so many: at most what it can use."""
        return int(max(0, min(wanted, self.cache_cost.largest)))

    @property
    def resident_bytes(self) -> int:
        """Bytes to hold the whole master in memory, and an eighth on its way there."""
        s = self.spec.master.statistics
        return int(self.cache_cost(s.rows, s.bytes) + s.bytes / 8) + 2 * self.page_bytes

    def fixed(self, buffer_pages: int) -> Components:
        """Return the components that every algorithm has, beside its window."""
        master = self.spec.master
        marks = master.statistics.parts if master.is_mapped else 0
        pages = buffer_pages * self.page_bytes + marks
        blocks = self.directory_line * self.run_pages(Settings(buffer_pages=buffer_pages))
        output = max(self._least_output, self.output_bytes - blocks)  # at its expense, if it can
        return Components(pages=pages, output=output, filter=self.filter_words * 8, blocks=blocks)

    @cached_property
    def directory_line(self) -> int:
        """Bytes to note where a page's buffers lie; 0 where columns are nested, and none is."""
        wanted = gathered_schema(self.spec)
        if not PageDirectory.possible(wanted):
            return 0
        return PageDirectory.cost(self.spec.master.page_schema, wanted.names)

    @staticmethod
    def run_pages(settings: Settings) -> int:
        """Return the pages that are matched at once: a page run, or a part of the disk buffer."""
        return settings.run_pages or min(settings.buffer_pages or 1, _MOST_RUN)

    @property
    def least_window(self) -> int:
        """Bytes of the smallest window that is of use."""
        return int(_LEAST_WINDOW_ROWS * self.window_row) + 1

    def split(
        self, algorithm: str, components: Components, settings: Settings | None = None
    ) -> Plan:
        """Return the plan that gives the rest of the budget to the window, or raise `TooSmall`."""
        window = self.memory - components.total
        if window < self.least_window:
            raise TooSmall(dict(components))
        rows = self.cost.rows(window, self.stream_row)
        sizes = replace(components, window=window)
        settings = replace(Settings() if settings is None else settings, window_rows=rows)
        return Plan(algorithm, self.memory, sizes, settings)
