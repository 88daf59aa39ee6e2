"""Tuning by the model: the split of the memory, and the page size, with the highest rate."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from semistream.cost.models import SETTLED
from semistream.cost.predict import Prediction, predict
from semistream.cost.tuning.knobs import PAGE_BYTES, Axis, knobs_of, page_axis, repaged, resized
from semistream.engine.plan import Task
from semistream.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from semistream.cost.demand import Demand
    from semistream.cost.tuning.knobs import Value
    from semistream.cost.unit_costs import UnitCosts
    from semistream.spec import JoinSpec

    Options = Mapping[str, Value]

__all__ = ["Point", "Tuned", "search", "tuned", "tuned_pages"]

_POINTS = {1: 24, 2: 9}  # of the first grid, for each axis: by how many axes there are
_FINER = 5  # of each grid after it
_CLOSE = 0.004  # two shares that near are as good as one


@dataclass(frozen=True)
class Point:
    """A choice of the knobs, and the rate with it."""

    options: Options
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))


@dataclass(frozen=True)
class Tuned:
    """What the model says of an algorithm's knobs."""

    algorithm: str
    prediction: Prediction
    """What the best choice is expected to do."""
    best: Point
    curve: tuple[Point, ...]
    """Every choice that was tried and has a plan."""
    untuned: Point
    """The algorithm's own choice, without options; for MESHJOIN the papers' closed form."""

    @property
    def options(self) -> Options:
        """The best choice."""
        return self.best.options

    def along(self, option: str) -> tuple[Point, ...]:
        """Give the curve over one knob, the others as in the best choice.

        Examples
        --------
        >>> points = [Point({"k": k, "l": l}, k * l) for k in (1, 2) for l in (3, 4)]
        >>> tuned = Tuned("t", None, points[3], tuple(points), points[0])
        >>> [(dict(point.options), point.rate) for point in tuned.along("l")]
        [({'k': 2, 'l': 3}, 6), ({'k': 2, 'l': 4}, 8)]
        """
        others = {name: value for name, value in self.options.items() if name != option}
        chosen = [p for p in self.curve if others.items() <= p.options.items()]
        return tuple(sorted(chosen, key=lambda point: point.options[option]))

    def loss(self, point: Point) -> float:
        """Give the share of the best rate that another choice loses."""
        return 1 - point.rate / self.best.rate


def tuned(
    name: str,
    spec: JoinSpec,
    memory: int,
    demand: Demand,
    costs: UnitCosts,
    *,
    age: float = SETTLED,
    batch: int = 0,
) -> Tuned:
    """Find the split of an algorithm's memory with the highest predicted rate.

    A grid over all knobs, then finer ones around the best point; at last the lines through it.
    For ``age`` and ``batch`` see `predict`.

    Notes
    -----
    MESHJOIN's buffer. By the papers' closed form, `tuned_buffer`, the optimum is √(q² + q·M) − q,
    where q, what a read costs before its first byte comes, is a fit to the optimum that a paper
    prints for a disk of 2008. Here c_I/O is a measured curve, and c_loop has all the other costs of
    an iteration, which are paid for each row, whatever the buffer. So the optimum differs: a disk
    with a smaller q wants a smaller buffer, and the more rows cost beside the read, the flatter is
    the curve. The closed form's buffer is one of the candidates, and the algorithm's own choice.

    Raises
    ------
    BudgetError
        Where no choice fits into the memory.
    """

    def expect(options: Options) -> Prediction:
        return predict(name, spec, memory, demand, costs, options=options, age=age, batch=batch)

    task = Task.of(spec, memory, None)
    axes = {knob.option: knob.axis(task) for knob in knobs_of(name)}
    return _tuned(name, axes, expect)


def tuned_pages(
    name: str,
    spec: JoinSpec,
    memory: int,
    demand: Demand,
    costs: UnitCosts,
    *,
    age: float = SETTLED,
    batch: int = 0,
) -> Tuned:
    """Find the page size of the store with the highest predicted rate, in the same way.

    It is no option of a join but of `build_master`: ``options`` has it as ``page_bytes``. Predicted
    is with the statistics that a master of such pages would have (`resized`).
    """

    def expect(options: Options) -> Prediction:
        size = int(options.get(PAGE_BYTES, spec.files.manifest.page_bytes))
        master = resized(spec.files, size)
        asked = repaged(demand, master.pages)
        other = replace(spec, master=master)
        return predict(name, other, memory, asked, costs, age=age, batch=batch)

    return _tuned(name, {PAGE_BYTES: page_axis(spec.files)}, expect)


def _tuned(name: str, axes: Mapping[str, Axis], expect: Callable[[Options], Prediction]) -> Tuned:
    def rate(values: tuple[Value, ...]) -> float | None:
        try:
            return expect(dict(zip(axes, values, strict=True))).rate
        except BudgetError:
            return None

    untuned = expect({})
    found = search(rate, list(axes.values()))
    if not found:
        found = search(rate, [replace(axis, high=axis.low) for axis in axes.values()])
    curve = tuple(Point(dict(zip(axes, at, strict=True)), value) for at, value in found.items())
    best = max(curve, key=lambda point: point.rate)
    return Tuned(name, expect(best.options), best, curve, Point({}, untuned.rate))


def search(
    rate: Callable[[tuple[Value, ...]], float | None], axes: Sequence[Axis]
) -> dict[tuple[Value, ...], float]:
    """Try values on all axes, then ever finer around the best; give all that were tried.

    Parameters
    ----------
    rate
        The rate at a point, None where none is possible.
    axes
        The values that each coordinate may have.

    Examples
    --------
    >>> found = search(lambda at: -(at[0] - 37) ** 2.0, [Axis(1, 1000, unit=1)])
    >>> max(found, key=found.get)
    (37,)
    """
    tried: dict[tuple[Value, ...], float | None] = {}

    def attempt(values: Iterable[Sequence[Value]]) -> bool:
        new = [at for at in itertools.product(*values) if at not in tried]
        tried.update((at, rate(at)) for at in new)
        return bool(new)

    def found() -> dict[tuple[Value, ...], float]:
        return {at: value for at, value in tried.items() if value is not None}

    points = _POINTS.get(len(axes), 5)
    new = attempt(sorted({*axis.grid(points), *axis.also}) for axis in axes)
    while new:
        if not (possible := found()):
            return {}
        best = max(possible, key=possible.__getitem__)
        new = attempt(_around(axis, tried, best, number) for number, axis in enumerate(axes))
        if not new:  # the lines through the best point, on which a better one may lie
            new = sum(attempt(_line(axes, best, number)) for number in range(len(axes))) > 0
    return found()


def _line(axes: Sequence[Axis], at: tuple[Value, ...], number: int) -> list[Sequence[Value]]:
    """Give the points that differ from one in one coordinate."""
    line: list[Sequence[Value]] = [[value] for value in at]
    line[number] = axes[number].grid(_POINTS[1])
    return line


def _around(
    axis: Axis, tried: Iterable[tuple[Value, ...]], best: tuple[Value, ...], number: int
) -> list[Value]:
    """Give values between the neighbours of the best one that were tried."""
    here = best[number]
    values = sorted({at[number] for at in tried})
    place = values.index(here)
    low, high = values[max(0, place - 1)], values[min(len(values) - 1, place + 1)]
    if not axis.unit and high - low <= _CLOSE:
        return [here]
    return sorted({here, *axis.grid(_FINER, low, high)})
