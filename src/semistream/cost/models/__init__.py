"""A model for every algorithm: from a plan and a distribution to what one iteration does."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from semistream.cost.models.adaptive import adaptive
from semistream.cost.models.base import SETTLED, Setting
from semistream.cost.models.batches import derakhshan, partition_join, ssij
from semistream.cost.models.cachejoin import cachejoin, pcsrj
from semistream.cost.models.hybridjoin import hybridjoin, inlj
from semistream.cost.models.meshjoin import meshjoin, ssbj
from semistream.cost.models.moij import moij
from semistream.cost.models.resident import at_once, resident
from semistream.cost.models.x_hybridjoin import (
    optimised_x_hybridjoin,
    tuned_x_hybridjoin,
    x_hybridjoin,
)
from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semistream.cost.loop import Loop
    from semistream.engine.plan import Plan

__all__ = ["MODELS", "SETTLED", "Setting", "check_model", "kind_of", "loop_of"]

MODELS: Mapping[str, Callable[[Setting], Loop]] = MappingProxyType(
    {
        "inlj": inlj,
        "meshjoin": meshjoin,
        "r-meshjoin": meshjoin,
        "partition-join": partition_join,
        "ssij": ssij,
        "derakhshan": derakhshan,
        "hybridjoin": hybridjoin,
        "x-hybridjoin": x_hybridjoin,
        "optimised-x-hybridjoin": optimised_x_hybridjoin,
        "tuned-x-hybridjoin": tuned_x_hybridjoin,
        "cachejoin": cachejoin,
        "pcsrj": pcsrj,
        "moij": moij,
        "ssbj": ssbj,
        "adaptive": adaptive,
    }
)

_LOOPS = {**MODELS, "resident": resident, "at once": at_once}


def kind_of(plan: Plan) -> str:
    """Give the name of the loop that a plan runs: the algorithm's, or one without pages to bring.

    ``"resident"`` where the budget holds all of the master, ``"at once"`` where rows are looked up
    in mapped pages, which the operating system is then taken to hold.
    """
    if plan.settings.get("resident"):
        return "resident"
    return "at once" if "lookup" in plan.components else plan.algorithm


def loop_of(setting: Setting) -> Loop:
    """Give what one iteration of the planned algorithm does."""
    kind = kind_of(setting.plan)
    check_model(kind)
    return _LOOPS[kind](setting)


def check_model(name: str) -> None:
    """Refuse an algorithm without a model: a join can use it, but nothing is known beforehand.

    Examples
    --------
    >>> check_model("yourjoin")
    Traceback (most recent call last):
    semistream.errors.OptionError: algorithm 'yourjoin' has no cost model, ...
    """
    if name not in _LOOPS:
        msg = (
            f"algorithm {name!r} has no cost model, so nothing can be predicted of it; leave it "
            f"out, these have one: {', '.join(MODELS)}"
        )
        raise OptionError(msg)
