"""A model for every algorithm: from a plan and a distribution to what one iteration does."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from semistream.cost.models.adaptive import adaptive
from semistream.cost.models.base import Setting
from semistream.cost.models.batches import derakhshan, partition_join, ssij
from semistream.cost.models.cachejoin import cachejoin, pcsrj
from semistream.cost.models.hybridjoin import hybridjoin, inlj
from semistream.cost.models.meshjoin import meshjoin, ssbj
from semistream.cost.models.moij import moij
from semistream.cost.models.resident import resident
from semistream.cost.models.x_hybridjoin import (
    optimised_x_hybridjoin,
    tuned_x_hybridjoin,
    x_hybridjoin,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semistream.cost.loop import Loop

__all__ = ["MODELS", "Setting", "loop_of"]

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


def loop_of(setting: Setting) -> Loop:
    """Give what one iteration of the planned algorithm does."""
    if setting.plan.settings.get("resident"):
        return resident(setting)
    return MODELS[setting.plan.algorithm](setting)
