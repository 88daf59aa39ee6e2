"""Choices: which algorithm is predicted to be the fastest, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semistream.algorithms import choose
from semistream.cost.models import MODELS
from semistream.cost.predict import predict
from semistream.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from semistream.algorithms import Algorithm
    from semistream.cost.demand import Demand
    from semistream.cost.predict import Prediction
    from semistream.cost.unit_costs import UnitCosts
    from semistream.plan import Plan, Task
    from semistream.spec import JoinSpec

__all__ = ["DEFAULT", "Choice", "Planner", "Room"]

DEFAULT = "adaptive"
_WORTH = 1.3  # times as fast: predictions are good to a fifth, and a switch has its price
_SHARES = (0.1, 0.3, 0.5, 0.7)  # of the memory, for a cache whose size is an option
_SHARED = ("cachejoin", "pcsrj", "partition-join", "ssij", "derakhshan")  # those that have one
_TUNED = 2  # of them are tried with these, the fastest


@dataclass(frozen=True)
class Room:
    """A join, and the memory that an algorithm of it has."""

    spec: JoinSpec
    memory: int
    use_filter: bool | None

    def plan(
        self, algorithm: str, options: Mapping[str, Any]
    ) -> tuple[type[Algorithm], Task, Plan]:
        """Plan an algorithm."""
        return choose(algorithm, self.spec, self.memory, self.use_filter, options)


@dataclass(frozen=True)
class Choice:
    """An algorithm with its options, and why it is the one."""

    algorithm: str = DEFAULT
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    prediction: Prediction | None = None

    def same(self, other: Choice) -> bool:
        """Whether both are the same join."""
        return (self.algorithm, self.options) == (other.algorithm, other.options)

    @property
    def rate(self) -> float:
        """The predicted rate."""
        return self.prediction.rate if self.prediction else 0.0

    def __str__(self) -> str:
        split = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.algorithm}({split})" if split else self.algorithm


@dataclass(frozen=True)
class Planner:
    """Predicts what each algorithm would do, with the costs of a machine."""

    room: Room
    costs: UnitCosts

    def best(self, demand: Demand, running: Choice) -> Choice:
        """Give the fastest, or what is running if no other is much faster."""
        ranked = self._ranked(demand, running)
        now = next((choice for choice in ranked if choice.same(running)), ranked[0])
        chosen = ranked[0] if ranked[0].rate > _WORTH * now.rate else now
        others = (choice for choice in ranked if choice.algorithm != chosen.algorithm)
        other = next(others, None)
        behind = f", {other} {other.rate:,.0f}" if other else ""
        return Choice(
            chosen.algorithm,
            chosen.options,
            f"{chosen}, predicted {chosen.rate:,.0f} rows/s{behind}",
            chosen.prediction,
        )

    def knows(self, algorithm: str) -> bool:
        """Whether the algorithm was measured; one that was not would look too fast."""
        return f"{algorithm} {self.room.spec.master.read}" in self.costs.fits

    def _ranked(self, demand: Demand, running: Choice) -> list[Choice]:
        """Give all that are possible, the fastest first."""
        names = [Choice(name) for name in MODELS if self.knows(name)]
        ranked = _by_rate(self._predicted(names, demand))
        tuned = [choice.algorithm for choice in ranked if choice.algorithm in _SHARED][:_TUNED]
        splits = [Choice(name, {"cache": share}) for name in tuned for share in _SHARES]
        if running.options and not any(running.same(choice) for choice in splits):
            splits.append(Choice(running.algorithm, running.options))
        return _by_rate([*ranked, *self._predicted(splits, demand)])

    def _predicted(self, choices: list[Choice], demand: Demand) -> Iterator[Choice]:
        for choice in choices:
            try:
                found = self._predict(choice, demand)
            except BudgetError:
                continue
            if choice.algorithm == DEFAULT or self._takes_rows_as_wide(found.plan):
                yield Choice(choice.algorithm, choice.options, "", found)

    def _predict(self, choice: Choice, demand: Demand) -> Prediction:
        return predict(
            choice.algorithm,
            self.room.spec,
            self.room.memory,
            demand,
            self.costs,
            use_filter=self.room.use_filter,
            options=choice.options,
        )

    def _takes_rows_as_wide(self, plan: Plan) -> bool:
        """Whether no row is refused that the default would take, however wide it is."""
        _, task, default = self._default
        pairs = zip(_widest(plan), _widest(default), strict=True)
        return task.cost.width is not None or all(room >= least for room, least in pairs)

    @cached_property
    def _default(self) -> tuple[type[Algorithm], Task, Plan]:
        return self.room.plan(DEFAULT, {})


def _by_rate(choices: Iterator[Choice] | list[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda choice: -choice.rate)


def _widest(plan: Plan) -> tuple[float, float]:
    """Give the room that one row has, in the window and in the output, at the least."""
    nodes = int(plan.settings.get("nodes", 1))
    window = int(plan.settings.get("least_window", plan.components["window"]))
    return window / nodes, plan.components["output"] / nodes
