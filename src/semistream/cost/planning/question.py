"""What is asked of the planner: a join, what its stream asks for, a machine, some algorithms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from semistream.cost.models import kind_of
from semistream.cost.predict import predict
from semistream.engine.plan import Task
from semistream.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.cost.demand import Demand
    from semistream.cost.predict import Prediction
    from semistream.cost.unit_costs import UnitCosts
    from semistream.spec import JoinSpec

__all__ = ["Question", "is_mapped", "is_whole"]

_EXACT = 1024  # bytes: the least budget is found to that


def is_whole(prediction: Prediction) -> bool:
    """Tell whether the budget holds all of the master."""
    return kind_of(prediction.plan) == "resident"


def is_mapped(prediction: Prediction) -> bool:
    """Tell whether rows are looked up in mapped pages, which the system is taken to hold."""
    return kind_of(prediction.plan) == "at once"


@dataclass(frozen=True, eq=False)
class Question:
    """A join whose rate is to be predicted for any algorithm and budget."""

    spec: JoinSpec
    demand: Demand
    costs: UnitCosts
    names: tuple[str, ...]
    """The algorithms that are asked about."""
    _known: dict[tuple[str, int], Prediction | None] = field(default_factory=dict, repr=False)

    def of(self, demand: Demand) -> Question:
        """Give the same question for another stream."""
        return replace(self, demand=demand, _known={})

    def predict(self, name: str, memory: int) -> Prediction | None:
        """Predict an algorithm's rate; None where the budget is too small for it."""
        if (name, memory) not in self._known:
            try:
                found = predict(name, self.spec, memory, self.demand, self.costs)
            except BudgetError:
                found = None
            self._known[name, memory] = found
        return self._known[name, memory]

    def rate(self, name: str, memory: int) -> float:
        """Give the predicted rate, 0 where the budget is too small."""
        found = self.predict(name, memory)
        return found.rate if found else 0.0

    def least_budget(self, name: str) -> int:
        """Give the least budget that works for an algorithm, to a KB."""
        return _first(lambda memory: self.predict(name, memory) is not None, 64 * _EXACT)

    @cached_property
    def whole(self) -> int:
        """The least budget that holds all of the master, if one does: of 2 GB none is tried."""
        need = Task.of(self.spec, 1 << 20, None).resident_bytes

        def holds(memory: int) -> bool:
            found = self.predict(self.names[0], memory)
            return found is not None and is_whole(found)

        return _first(holds, 2 * need, need) if holds(2 * need) else 2 * need


def _first(possible: Callable[[int], bool], start: int, low: int = 0) -> int:
    """Find from where on something is possible, by doubling and bisection."""
    high = start
    while not possible(high):
        low, high = high, 2 * high
    while high - low > _EXACT:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high
