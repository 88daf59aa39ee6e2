"""Unit costs: the seconds that the operations of a loop take on one machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.cost.loop import Loop

__all__ = ["Curve", "Fit", "RowCost", "Rows", "Shape", "UnitCosts", "way"]


def way(read: str, ahead: int = 0) -> str:
    """Name a way to read, with so many reads in flight; one and three are told apart.

    Examples
    --------
    >>> way("direct"), way("direct", 1), way("direct", 5)
    ('direct', 'direct, 1 ahead', 'direct, 3 ahead')
    """
    return f"{read}, {1 if ahead == 1 else 3} ahead" if ahead else read


@dataclass(frozen=True)
class Curve:
    """Seconds as a function of a size, through measured points.

    Between two points it is a straight line, behind the last one the line goes on.

    Examples
    --------
    >>> c_io = Curve((4096.0, 131072.0), (0.0001, 0.0002))
    >>> c_io(131072), c_io(2 * 131072) > 0.0002
    (0.0002, True)
    """

    at: tuple[float, ...]
    value: tuple[float, ...]

    def __call__(self, size: float) -> float:
        """Give the value at a size."""
        if size > self.at[-1] and len(self.at) > 1:
            slope = (self.value[-1] - self.value[-2]) / (self.at[-1] - self.at[-2])
            return self.value[-1] + max(0.0, slope) * (size - self.at[-1])
        return float(np.interp(size, self.at, self.value))

    def __mul__(self, by: float) -> Curve:
        return Curve(self.at, tuple(by * value for value in self.value))


@dataclass(frozen=True)
class Shape:
    """The columns of a join's rows: those of the stream, and those of the master that come out."""

    stream_columns: int = 3
    stream_bytes: float = 20.0
    """The papers' v_S."""
    payload_columns: int = 5
    payload_bytes: float = 112.0


@dataclass(frozen=True)
class RowCost:
    """Seconds for one row: a fixed part, one for each column, one for each byte."""

    fixed: float
    column: float = 0.0
    byte: float = 0.0

    def __call__(self, columns: float, size: float) -> float:
        """Give the seconds for a row of so many columns and bytes."""
        return self.fixed + self.column * columns + self.byte * size

    def times(self, factor: float) -> RowCost:
        """Give the cost of a row that is so much dearer."""
        return RowCost(factor * self.fixed, factor * self.column, factor * self.byte)


@dataclass(frozen=True)
class Fit:
    """What an algorithm's loop does beside the operations that are counted, measured in runs.

    These are the papers' fudge factors: they say how far an implementation is from its model.
    """

    step: float = 0.0
    """Seconds for each page that is met, beside its read."""
    rows: float = 1.0
    """What rows that wait cost in the whole loop, to the operations measured one by one."""
    hits: float = 1.0
    """What rows that a cache answers cost likewise, the cache's upkeep included."""
    fill: float = 1.0
    """Rows that a page answers, to those that a full window would have for it."""
    wake: float = 0.0
    """Seconds that a read in flight takes longer within the loop, if it is waited for."""
    judge: float = 0.0
    """Seconds for each page of which a value enters the cache, until that has left again."""
    cached: float = 1.0
    """Hottest keys that would answer as much as the cache does, to the keys that are in it."""
    beside: float = 0.0
    """What a loop takes longer for each other that runs beside it, to what it takes alone: 0 where
    they overlap, 1 where they take turns, more where they are in each other's way."""


class Rows(NamedTuple):
    """The seconds of an iteration's rows, by the operations measured one by one."""

    matching: float
    """To match rows with pages and give them out."""
    waiting: float
    """To take in the rows that wait, and to let them go."""
    hits: float
    """To answer rows from the cache."""


@dataclass(frozen=True)
class UnitCosts:
    """The seconds of each operation, by the papers' names."""

    c_io: Mapping[str, Curve]
    """A read into the disk buffer, its checksum included, over its bytes: for each way to read,
    and with reads in flight (see `way`), then per read."""
    c_S: RowCost  # noqa: N815 - the papers' symbols, here and below
    """Take a stream row in: its code, its page."""
    c_A: RowCost  # noqa: N815
    """Append a row to the window."""
    c_E: RowCost  # noqa: N815
    """Move a row of the window to where one left."""
    c_H: RowCost  # noqa: N815
    """Look a row up in the cache."""
    c_O: RowCost  # noqa: N815
    """Match a row, and give it out."""
    far: Curve
    """How much dearer a row is in a window of so many bytes than in a small one."""
    fits: Mapping[str, Fit]
    """By algorithm and way to read: ``"meshjoin direct"``."""
    standards: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a read of one page took in turn with the runs, by way to read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "c_io", MappingProxyType(dict(self.c_io)))
        object.__setattr__(self, "fits", MappingProxyType(dict(self.fits)))
        object.__setattr__(self, "standards", MappingProxyType(dict(self.standards)))

    def __reduce__(self) -> tuple[Any, ...]:
        return UnitCosts.from_dict, (self.as_dict(),)  # views of mappings cannot be pickled

    def fit(self, name: str, read: str) -> Fit:
        """Give what was measured of an algorithm, or nothing of note for one that was not."""
        return self.fits.get(f"{name} {read}", Fit())

    def with_reads(self, c_io: Mapping[str, Curve]) -> UnitCosts:
        """Give these costs with other reads."""
        return replace(self, c_io={**self.c_io, **c_io})

    def drift(self, standards: Mapping[str, float]) -> dict[str, float]:
        """Give what reads take now, to what they took when they were calibrated."""
        return {
            way: seconds / self.standards[way]
            for way, seconds in standards.items()
            if way in self.standards
        }

    def drifted(self, drift: Mapping[str, float]) -> UnitCosts:
        """Give these costs as they are on the disk of another minute.

        Examples
        --------
        >>> from semistream.cost.example import example_profile
        >>> costs = example_profile().costs
        >>> slow = costs.drifted({"direct": 2.0})
        >>> slow.c_io["direct"](131072) / costs.c_io["direct"](131072)
        2.0
        """
        return self.with_reads({way: self.c_io[way] * by for way, by in drift.items()})

    def rows_seconds(self, loop: Loop, shape: Shape) -> Rows:
        """Give the seconds for an iteration's rows.

        MOIJ's equation 2, w_S (c_S + c_A + c_O + c_E) + w_N (c_S + c_H + c_O), with c_E for each of
        the rows that are moved when one leaves, c_H for those that miss the cache as well, and c_O
        only for those of which something comes out.
        """
        columns, size = shape.stream_columns, shape.stream_bytes
        far = self.far(loop.window_bytes)
        out = self.c_O(
            columns + shape.payload_columns * loop.output,
            size + shape.payload_bytes * loop.output,
        )
        taken, kept = self.c_S(columns, size), self.c_A(columns, size)
        kept += loop.moves * self.c_E(columns, size)
        probe = self.c_H(columns, size) * self.far(loop.cache_bytes) if loop.cache_bytes else 0.0
        return Rows(
            matching=(loop.w_S - loop.silent) * far * out,
            waiting=(loop.w_S + loop.w_F) * (taken + probe) + loop.w_S * far * kept,
            hits=loop.w_N * (taken + probe + out),
        )

    def c_loop(self, name: str, loop: Loop, shape: Shape, read: str) -> float:
        """Give the seconds of one iteration (the papers' c_loop)."""
        return self.seconds(self.fit(name, read), loop, shape, read)

    def seconds(self, fit: Fit, loop: Loop, shape: Shape, read: str) -> float:
        """Give the seconds of one iteration of an algorithm with such factors.

        Examples
        --------
        >>> from semistream.cost.example import example_profile
        >>> from semistream.cost.loop import Loop
        >>> costs, pair = example_profile().costs, Loop(w_S=100, nodes=2)
        >>> alone, turns = (costs.seconds(Fit(beside=b), pair, Shape(), "direct") for b in (0, 1))
        >>> round(turns / alone, 6)
        2.0
        """
        return self._alone(fit, loop, shape, read) * (1 + (loop.nodes - 1) * fit.beside)

    def _alone(self, fit: Fit, loop: Loop, shape: Shape, read: str) -> float:
        rows = self.rows_seconds(loop, shape)
        met = fit.rows * rows.matching + fit.step * (loop.pages + loop.met)
        before = fit.rows * rows.waiting + fit.hits * rows.hits + fit.judge * loop.judged
        if loop.ahead:  # the next pages are read while one is matched
            return max(self.disk(loop, read) + fit.wake * loop.reads, met) + before
        return self.disk(loop, read) + met + before

    def disk(self, loop: Loop, read: str) -> float:
        """Give the seconds of an iteration's reads."""
        return loop.reads * self.c_io[way(read, loop.ahead)](loop.read_bytes)

    def as_dict(self) -> dict[str, Any]:
        """Give all costs for a file."""
        rows = {name: vars(getattr(self, name)) for name in _ROWS}
        return {
            "c_io": {name: _points(curve) for name, curve in self.c_io.items()},
            **rows,
            "far": _points(self.far),
            "fits": {name: vars(fit) for name, fit in self.fits.items()},
            "standards": dict(self.standards),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `as_dict` gave."""
        return cls(
            c_io={name: _curve(points) for name, points in values["c_io"].items()},
            **{name: RowCost(**values[name]) for name in _ROWS},
            far=_curve(values["far"]),
            fits={name: Fit(**fit) for name, fit in values["fits"].items()},
            standards=values.get("standards", {}),
        )


_ROWS = ("c_S", "c_A", "c_E", "c_H", "c_O")


def _points(curve: Curve) -> list[list[float]]:
    return [list(point) for point in zip(curve.at, curve.value, strict=True)]


def _curve(points: list[list[float]]) -> Curve:
    at, value = zip(*points, strict=True)
    return Curve(at, value)
