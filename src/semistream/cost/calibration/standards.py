"""Standards: fixed pieces of work, timed beside runs to know how fast the machine is just then.

A machine that others use as well is not as fast in one minute as in another: on the one of the
docs a read takes up to half as long again as it did some minutes before. No model of a join can
know that. So reads, and rows in memory, are timed in turn with what is measured: once when the
machine is calibrated, and again when what was predicted is compared with what is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.calibration import operations
from semistream.cost.calibration.reads import time_reads
from semistream.cost.unit_costs import WORK, Shape

if TYPE_CHECKING:
    from semistream.master import Master

__all__ = ["Standards"]

_SECONDS = 0.03  # of reads in each way, in a turn
_REPEATS = 9
_SHAPE = Shape()


class Standards:
    """Times reads of a master's pages and rows in memory, turn by turn."""

    def __init__(self, master: Master) -> None:
        self._master, self._draw = master, np.random.default_rng(0)
        self._spent: dict[str, list[float]] = defaultdict(list)

    def turn(self) -> None:
        """Time each once."""
        for way, _, seconds in time_reads(self._master, _SECONDS, self._draw):
            self._spent[way].append(seconds)
        probed = operations.probe_cost(_REPEATS).fixed
        given_out = operations.output_cost(_REPEATS)(_SHAPE.payload_columns, _SHAPE.payload_bytes)
        self._spent[WORK].append(math.sqrt(probed * given_out))

    @property
    def seconds(self) -> dict[str, float]:
        """What a read takes, by way to read, and a row."""
        return {what: float(np.median(spent)) for what, spent in self._spent.items()}
