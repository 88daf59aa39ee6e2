"""The algorithms of the papers, by name; loaded when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.algorithms.cachejoin import Cachejoin
from semistream.algorithms.derakhshan import Derakhshan
from semistream.algorithms.hybridjoin import Hybridjoin
from semistream.algorithms.inlj import Inlj
from semistream.algorithms.meshjoin import Meshjoin
from semistream.algorithms.moij import Moij
from semistream.algorithms.optimised_x_hybridjoin import OptimisedXHybridjoin
from semistream.algorithms.partition_join import PartitionJoin
from semistream.algorithms.pcsrj import Pcsrj
from semistream.algorithms.r_meshjoin import RMeshjoin
from semistream.algorithms.ssbj import Ssbj
from semistream.algorithms.ssij import Ssij
from semistream.algorithms.tuned_x_hybridjoin import TunedXHybridjoin
from semistream.algorithms.x_hybridjoin import XHybridjoin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.algorithms.base import Algorithm

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
