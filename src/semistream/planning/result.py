"""The answer of a plan, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.planning.curve import Asked, Curve, Point
    from semistream.planning.planner import Problem

__all__ = ["Planning", "format_rate"]

_HEADS = ("memory", "rows/s", "from memory", "pages/s", "read/s")


@dataclass(frozen=True, eq=False)
class Planning:
    """What budgets buy; print it to read it."""

    problem: Problem
    asked: Asked
    join: Curve
    """A `Join` in one thread."""
    enrich: Curve | None
    """`enrich` on Spark; None where it cannot be planned."""
    where: str
    """What `enrich` runs on, or why it cannot be planned."""

    @property
    def memory(self) -> int | None:
        """The bytes to give: to `enrich`, or without Spark to a `Join`; None if none suffices."""
        chosen = (self.enrich or self.join).chosen
        return chosen.memory if chosen else None

    def as_dict(self) -> dict[str, Any]:
        """Return everything for programs; every number is predicted."""
        curves = {"join": self.join, "enrich": self.enrich}
        view, master = self.problem.view, self.problem.master
        return {
            "memory": self.memory,
            "asked": asdict(self.asked),
            "algorithm": self.problem.algorithm,
            "stream": self.problem.stream,
            "simulated_pages": view.pages,
            "pages": master.pages,
            "machine": asdict(self.problem.machine),
            "where": self.where,
            **{name: asdict(curve) if curve else None for name, curve in curves.items()},
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        first = self.enrich or self.join
        yield _advice(first, self.asked, self.where if self.enrich else "")
        for curve in (self.enrich, self.join):
            if curve is None:
                yield f"\nenrich: not planned, {self.where}"
                continue
            on = self.where if curve is self.enrich else "one thread, without Spark"
            yield f"\n{curve.name}: {on}; at least {format_bytes(curve.least)}"
            yield from _table(curve)
            if curve.chosen:
                parts = curve.chosen.components.items()
                sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts if size)
                yield f"of {format_bytes(curve.chosen.memory)}: {sizes}"
        view, problem = self.problem.view, self.problem
        whole = problem.master.pages
        yield f"\nsimulated on {view.pages:,} of {whole:,} pages; stream: {problem.stream}"
        yield f"unit costs: {problem.machine.source}"


def _advice(curve: Curve, asked: Asked, where: str) -> str:
    """Return the first line: the memory to give, and what it buys."""
    on = f" ({where})" if where else ""
    if curve.chosen is None:
        best = curve.best
        return (
            f"no memory gives {curve.name} {format_rate(asked.rate or 0)} rows/s{on}: the most is "
            f"{format_rate(best.rate)}, with {_typed(best.memory)}"
        )
    chosen = curve.chosen
    return (
        f"memory={_typed(chosen.memory)!r} for {curve.name}{on}: {format_rate(chosen.rate)} rows/s "
        f"predicted; {chosen.way}"
    )


def _table(curve: Curve) -> Iterator[str]:
    yield "".join(f"{head:>13}" for head in _HEADS)
    for point in curve.points:
        mark = " <" if curve.chosen and point.memory == curve.chosen.memory else ""
        yield "".join(f"{text:>13}" for text in _cells(point)) + mark


def _cells(point: Point) -> tuple[str, ...]:
    return (
        format_bytes(point.memory),
        format_rate(point.rate),
        f"{point.from_memory:.1%}",
        f"{point.pages:,.0f}",
        format_bytes(point.bytes),
    )


def _typed(memory: int) -> str:
    """Write a budget as one types it, without rounding it.

    Examples
    --------
    >>> _typed(64 << 20), _typed(1536 << 10), _typed(1000)
    ('64MB', '1536KB', '1000B')
    """
    for unit, size in (("MB", 1 << 20), ("KB", 1 << 10)):
        if memory % size == 0:
            return f"{memory // size}{unit}"
    return f"{memory}B"


def format_rate(rate: float) -> str:
    """Write rows a second with three digits.

    Examples
    --------
    >>> format_rate(1_234_567), format_rate(98_765), format_rate(12)
    ('1.23M', '98.8k', '12')
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"
