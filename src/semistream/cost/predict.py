"""Predictions: the service rate of an algorithm, before it has run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semistream.algorithms import choose
from semistream.cost.models import SETTLED, Setting, kind_of, loop_of
from semistream.cost.unit_costs import Fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.cost.demand import Demand
    from semistream.cost.loop import Loop
    from semistream.cost.unit_costs import UnitCosts
    from semistream.engine.plan import Plan
    from semistream.spec import JoinSpec

__all__ = ["Prediction", "predict", "predicted", "standing"]

_DEFAULT, _AHEAD = "adaptive", 1.05


@dataclass(frozen=True)
class Prediction:
    """What an algorithm is expected to do with a budget."""

    algorithm: str
    plan: Plan
    """How the budget is split at the start."""
    loop: Loop
    """What one iteration does once caches have settled."""
    c_loop: float
    """Seconds of one iteration."""

    @property
    def rate(self) -> float:
        """Stream rows that are answered in a second (μ = w / c_loop)."""
        return self.loop.nodes * self.loop.w / self.c_loop

    @property
    def pages_a_second(self) -> float:
        """Pages that are read in a second."""
        return self.loop.nodes * self.loop.pages / self.c_loop


def standing(algorithm: str, rate: float) -> float:
    """Give what algorithms are ranked by: their rate, with a little more for the default.

    Predictions do not tell a few percent apart, and the others take long to be what is predicted:
    a CACHEJOIN 10⁸ rows.

    Examples
    --------
    >>> rates = {"cachejoin": 1_819_000, "adaptive": 1_794_000}
    >>> max(rates, key=lambda name: standing(name, rates[name]))
    'adaptive'
    """
    return rate * _AHEAD if algorithm == _DEFAULT else rate


def predict(  # noqa: PLR0913 - a join, its stream and a machine; three have defaults
    name: str,
    spec: JoinSpec,
    memory: int,
    demand: Demand,
    costs: UnitCosts,
    *,
    options: Mapping[str, Any] | None = None,
    age: float = SETTLED,
    batch: int = 0,
) -> Prediction:
    """Predict an algorithm's service rate; a budget too small for it is a `BudgetError`.

    It is that of a join that has had ``age`` stream rows, and is offered ``batch`` at once (0 where
    that is not known): a young one is slower, for its cache still changes.
    """
    _, task, plan = choose(name, spec, memory, None, options or {})
    return predicted(name, Setting(task, plan, demand, Fit(), age, batch), costs)


def predicted(name: str, setting: Setting, costs: UnitCosts) -> Prediction:
    """Predict the service rate of a join that is planned, with the factors that were measured."""
    kind, read = kind_of(setting.plan), setting.task.spec.files.read
    loop = loop_of(replace(setting, fit=costs.fit(kind, read)))
    return Prediction(name, setting.plan, loop, costs.c_loop(kind, loop, setting.shape, read))
