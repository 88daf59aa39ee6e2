"""The algorithms of the papers, by name; loaded when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.algorithms.published.cachejoin import Cachejoin
from semistream.algorithms.published.derakhshan import Derakhshan
from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.algorithms.published.inlj import Inlj
from semistream.algorithms.published.meshjoin import Meshjoin
from semistream.algorithms.published.moij import Moij
from semistream.algorithms.published.optimised_x_hybridjoin import OptimisedXHybridjoin
from semistream.algorithms.published.partition_join import PartitionJoin
from semistream.algorithms.published.pcsrj import Pcsrj
from semistream.algorithms.published.r_meshjoin import RMeshjoin
from semistream.algorithms.published.ssbj import Ssbj
from semistream.algorithms.published.ssij import Ssij
from semistream.algorithms.published.tuned_x_hybridjoin import TunedXHybridjoin
from semistream.algorithms.published.x_hybridjoin import XHybridjoin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.engine.algorithm import Algorithm

__all__ = ["PUBLISHED"]

PUBLISHED: Mapping[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        Inlj,
        Meshjoin,
        RMeshjoin,
        PartitionJoin,
        Ssij,
        Derakhshan,
        Hybridjoin,
        XHybridjoin,
        OptimisedXHybridjoin,
        TunedXHybridjoin,
        Cachejoin,
        Pcsrj,
        Moij,
        Ssbj,
    )
}
