"""Standards: fixed pieces of work, timed beside runs to know how fast the machine is just then.

A machine that others use as well is not as fast in one minute as in another: on the one of the
docs a read takes up to half as long again as it did some minutes before. No model of a join can
know that. So reads, and rows in memory, are timed in turn with what is measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.calibration import operations
from semistream.cost.calibration.reads import time_reads
from semistream.cost.unit_costs import Drift, Shape

if TYPE_CHECKING:
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import Master

__all__ = ["Standards"]

_SECONDS = 0.03  # of reads in each way, in a turn
_REPEATS = 3
_SHAPE = Shape()


class Standards:
    """Times reads and rows in memory, to say how they differ from what a profile has.

    Parameters
    ----------
    master
        What is read.
    costs
        The profile's.
    """

    def __init__(self, master: Master, costs: UnitCosts) -> None:
        self._master, self._costs = master, costs
        self._draw = np.random.default_rng(0)
        self._reads: dict[str, list[float]] = defaultdict(list)
        self._work: list[float] = []

    def turn(self) -> None:
        """Time each once."""
        for way, size, spent in time_reads(self._master, _SECONDS, self._draw):
            self._reads[way].append(spent / self._costs.c_io[way](size))
        columns, size = _SHAPE.payload_columns, _SHAPE.payload_bytes
        probed = operations.probe_cost(_REPEATS).fixed / self._costs.c_H.fixed
        given_out = operations.output_cost(_REPEATS)(columns, size) / self._costs.c_O(columns, size)
        self._work.append(math.sqrt(probed * given_out))

    @property
    def drift(self) -> Drift:
        """What things take now, to what the profile has."""
        reads = {way: float(np.median(found)) for way, found in self._reads.items()}
        return Drift(reads, float(np.median(self._work)))
