"""The plan: how a memory budget is split among the parts of a join."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from semistream.arrow.gather import copies
from semistream.engine.cache import CacheCost
from semistream.engine.observer import Observer
from semistream.engine.output import gathered_schema, output_row_bytes
from semistream.engine.window import RowCost
from semistream.errors import OptionError
from semistream.master.files.filter import KeyFilter
from semistream.units import elapsed, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semistream.hotset.plan import Host
    from semistream.spec import JoinSpec

__all__ = ["MemoryUse", "Plan", "Runtime", "Task", "TooSmall", "in_steps"]

_LEAST_WINDOW_ROWS = 64
_LARGEST_OUTPUT = 16 << 20
_MOST_OUTPUT_ROWS = 1 << 16
_STEP = 64  # bytes


def in_steps(memory: int) -> int:
    """Round a budget down to whole steps, the unit of planning.

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


@dataclass(frozen=True)
class Plan:
    """How a budget is split; print it to read it.

    Examples
    --------
    >>> print(Plan("hybridjoin", 3072, {"window": 2048, "output": 1024}, {"window_rows": 30}))
    hybridjoin within 3 KB
      window       2 KB  66.7%
      output       1 KB  33.3%
    window_rows: 30
    """

    algorithm: str
    memory: int
    components: Mapping[str, int]
    """Bytes of each component; together at most ``memory``."""
    settings: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    """What the algorithm decided beside bytes: rows, pages, k, l, …"""
    tasks: int = 1
    """How many joins have these components; together with the host's at most ``memory``."""
    host: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each component that the joins on a host have together."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", MappingProxyType(dict(self.components)))
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))
        object.__setattr__(self, "host", MappingProxyType(dict(self.host)))

    def with_settings(self, **more: float | str | bool) -> Plan:
        """Give this plan with further settings."""
        return replace(self, settings={**self.settings, **more})

    def __str__(self) -> str:
        tasks = f", {self.tasks} tasks with these parts each" if self.tasks > 1 else ""
        lines = [f"{self.algorithm} within {format_bytes(self.memory)}{tasks}"]
        for name, size in (*self.components.items(), *self.host.items()):
            lines.append(f"  {name:<9} {format_bytes(size):>8} {size / self.memory:>6.1%}")
        if self.settings:
            lines.append(", ".join(f"{name}: {value}" for name, value in self.settings.items()))
        return "\n".join(lines)


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
    host: Host | None = None
    """What is held together with other joins on this host, beside ``memory``."""

    @classmethod
    def of(cls, spec: JoinSpec, memory: int, use_filter: bool | None) -> Task:
        """Describe a join; ``use_filter`` None lets the budget decide: at most 1/16 of it."""
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
        least = int(4 * self.output_row) + 1
        return max(least, min(self.memory // 8, _LARGEST_OUTPUT))

    @property
    def cache_cost(self) -> CacheCost:
        """What a cache pays for a master row."""
        return CacheCost.of(self.spec.master.page_schema)

    def cache_bytes(self, wanted: float) -> int:
        """Give the bytes of a cache that is to have so many: not more than it can use."""
        return int(max(0, min(wanted, self.cache_cost.largest)))

    @property
    def resident_bytes(self) -> int:
        """Bytes to hold the whole master in memory, and an eighth on its way there."""
        s = self.spec.master.statistics
        return int(self.cache_cost(s.rows, s.bytes) + s.bytes / 8) + 2 * self.page_bytes

    def fixed(self, buffer_pages: int) -> dict[str, int]:
        """Give the components that every algorithm has, beside its window."""
        marks = self.spec.master.statistics.parts if self.spec.master.is_mapped else 0
        parts = {"pages": buffer_pages * self.page_bytes + marks, "output": self.output_bytes}
        return parts | ({"filter": self.filter_words * 8} if self.filter_words else {})

    @property
    def least_window(self) -> int:
        """Bytes of the smallest window that is of use."""
        return int(_LEAST_WINDOW_ROWS * self.window_row) + 1

    def split(
        self,
        algorithm: str,
        components: Mapping[str, int],
        settings: Mapping[str, int | float | str | bool] | None = None,
    ) -> Plan:
        """Give the rest of the budget to the window, or raise `TooSmall`."""
        window = self.memory - sum(components.values())
        if window < self.least_window:
            raise TooSmall(components)
        rows = self.cost.rows(window, self.stream_row)
        sizes = {"window": window, **components}
        return Plan(algorithm, self.memory, sizes, {"window_rows": rows, **(settings or {})})
