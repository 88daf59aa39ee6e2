"""Knobs: what can be tuned of each algorithm, and of the store, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from semistream.algorithms import algorithms
from semistream.algorithms.published.meshjoin import tuned_buffer
from semistream.algorithms.published.parts.page_cache import PageCache
from semistream.errors import OptionError
from semistream.master.files.format import ALIGNMENT, aligned
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semistream.cost.demand import Demand
    from semistream.engine.plan import Task
    from semistream.master import FileMaster

__all__ = [
    "KNOBS",
    "PAGE_BYTES",
    "Axis",
    "Knob",
    "knobs_of",
    "page_axis",
    "repaged",
    "resized",
    "shown",
]

Value = int | float

PAGE_BYTES = "page_bytes"
"""The knob of the store: an option of `build_master`, not of a join."""
_LEAST_PAGE, _MOST_PAGE = 16 << 10, 1 << 20
_LEAST_SHARE, _MOST_SHARE = 0.02, 0.96


@dataclass(frozen=True)
class Axis:
    """The values that a knob may have in one setting.

    Examples
    --------
    >>> Axis(1, 64, unit=1).grid(4)
    [1, 4, 16, 64]
    >>> Axis(0.1, 0.9).grid(5)
    [0.1, 0.3, 0.5, 0.7, 0.9]
    >>> Axis(2, 64, unit=1, doubling=True).grid(99, 4, 16)
    [4, 8, 16]
    """

    low: float
    high: float
    unit: int = 0
    """Values are multiples of it, on a geometric scale; 0 is a share, on an even one."""
    also: tuple[Value, ...] = ()
    """Values that are always tried, for a paper or the default gives them."""
    doubling: bool = False
    """Whether each value is twice the one before, however many are asked for."""

    def grid(self, points: int, low: float | None = None, high: float | None = None) -> list[Value]:
        """Give so many values from ``low`` to ``high``, or of the whole axis."""
        start, end = self.low if low is None else low, self.high if high is None else high
        if self.doubling:
            powers = [1 << n for n in range(63)]
            return [power for power in powers if max(self.low, start) <= power <= end]
        if not self.unit:
            return sorted({round(float(x), 3) for x in np.linspace(start, end, points)})
        counts = np.geomspace(max(1, start / self.unit), max(1, end / self.unit), points)
        return sorted({int(n) * self.unit for n in np.rint(counts)})


@dataclass(frozen=True)
class Knob:
    """An option of an algorithm that divides its memory."""

    option: str
    what: str
    axis: Callable[[Task], Axis]


def _pages(task: Task, share: float, price: int | None = None) -> int:
    """Give how many pages a share of what can be divided has room for; at least one."""
    free = task.memory - sum(task.fixed(1).values()) - task.least_window
    most = int(share * free) // max(1, price or task.page_bytes)
    return max(1, min(most, task.spec.files.pages))


def _buffer(task: Task) -> Axis:
    """Half of the memory is more than any optimum: μ falls with what the window loses."""
    page = max(1, task.page_bytes)
    high = _pages(task, 0.5)
    closed_form = min(max(1, round(tuned_buffer(task.memory) / page)), high)
    return Axis(page, high * page, page, (closed_form * page,))


def _swappable(task: Task) -> Axis:
    return Axis(1, min(16, _pages(task, 0.5)), 1)


def _pinned(task: Task) -> Axis:
    return Axis(1, _pages(task, 0.9), 1)


def _pinned_rows(task: Task) -> Axis:
    return Axis(1, _pages(task, 0.9, PageCache.page_price(task)), 1)


def _share(also: float) -> Callable[[Task], Axis]:
    def axis(_: Task) -> Axis:
        return Axis(_LEAST_SHARE, _MOST_SHARE, 0, (also,))

    return axis


_BUFFER = (Knob("buffer", "disk buffer", _buffer),)
_K = Knob("k", "pages of the swappable part", _swappable)
_L = Knob("l", "pages of the non-swappable part", _pinned)


def _cache(default: float) -> tuple[Knob]:
    return (Knob("cache", "the cache's share", _share(default)),)


KNOBS: Mapping[str, tuple[Knob, ...]] = MappingProxyType(
    {
        "meshjoin": _BUFFER,
        "r-meshjoin": _BUFFER,
        "ssbj": _BUFFER,
        "tuned-x-hybridjoin": (_K, _L),
        "optimised-x-hybridjoin": (Knob("l", "pages pinned as rows", _pinned_rows),),
        "cachejoin": _cache(0.5),
        "pcsrj": _cache(0.5),
        "partition-join": _cache(0.25),
        "ssij": _cache(0.25),
        "derakhshan": _cache(0.5),
    }
)
"""By algorithm; the others divide their memory by themselves, or have nothing to divide."""


def knobs_of(name: str) -> tuple[Knob, ...]:
    """Give an algorithm's knobs; one without any is an error that says what can be tuned.

    Examples
    --------
    >>> [knob.option for knob in knobs_of("tuned-x-hybridjoin")]
    ['k', 'l']
    >>> knobs_of("hybridjoin")
    Traceback (most recent call last):
    semistream.errors.OptionError: 'hybridjoin' has nothing to tune but the page size ...
    """
    if name not in algorithms():
        raise OptionError.unknown("algorithm", name, algorithms())
    if name not in KNOBS:
        msg = (
            f"{name!r} has nothing to tune but the page size (--pages); of the memory's split these"
            f" have: {', '.join(KNOBS)}"
        )
        raise OptionError(msg)
    return KNOBS[name]


def shown(option: str, value: Value) -> str:
    """Write a knob's value as people do.

    Examples
    --------
    >>> shown("buffer", 262144), shown("cache", 0.25), shown("l", 7)
    ('256 KB', '25.0 %', '7')
    """
    if option in {"buffer", PAGE_BYTES}:
        return format_bytes(value)
    return f"{value:.1%}".replace("%", " %") if option == "cache" else str(value)


def page_axis(master: FileMaster) -> Axis:
    """Give the page sizes worth a try: powers of two that hold some rows, and the present."""
    some = 4 * master.statistics.widest_row
    low = max(_LEAST_PAGE, 1 << some.bit_length())
    present = master.manifest.page_bytes
    return Axis(low, max(low, _MOST_PAGE), ALIGNMENT, (present,), doubling=True)


def resized(master: FileMaster, page_bytes: int) -> FileMaster:
    """Give the master as it would be with other pages, for plans and models: it can't be read.

    A page has the same bytes beside its rows whatever its size; how many follows from the rows that
    the present pages hold.
    """
    m, s = master.manifest, master.statistics
    beside = min(max(0.0, m.page_bytes - s.bytes / max(1, s.pages)), m.page_bytes / 4)
    pages = max(1, -int(-s.bytes // max(1.0, page_bytes - beside)))
    several = (s.parts - s.pages) * m.page_bytes // page_bytes
    largest = aligned(max(page_bytes, s.widest_row))
    statistics = replace(s, pages=pages, parts=pages + several, largest_part=largest)
    return replace(master, manifest=replace(m, page_bytes=page_bytes, statistics=statistics))


def repaged(demand: Demand, pages: int) -> Demand:
    """Give what the same stream asks of a master with so many pages.

    Keys keep their order: a page of twice the size has the keys of two neighbours, and one of half
    the size gets each of its page's keys with even odds (always the same).

    Examples
    --------
    >>> from semistream.cost.demand import Demand
    >>> demand = Demand.zipf(values=100_000, exponent=1.0, pages=100)
    >>> before, after = demand.page_shares(), repaged(demand, 50).page_shares()
    >>> bool(np.allclose(before[0::2] + before[1::2], after))
    True
    """
    within = np.random.default_rng(0).random(len(demand.page))
    page = ((demand.page + within) * pages / demand.pages).astype(np.int32)
    return replace(demand, page=np.minimum(page, pages - 1), pages=pages)
