"""Standards: reads of single pages, timed beside runs to know how fast the disk is just then.

A disk that others use as well is not as fast in one minute as in another: on the machine of the
docs a read takes up to half as long again as it did some minutes before. No model of a join can
know that. So reads are timed in turn with what is measured: once when the machine is calibrated,
and again when what was predicted is compared with what is. (Rows in memory were timed likewise, and
left out: how long they take depends more on what ran before them than on the minute.)
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.calibration.reads import time_reads

if TYPE_CHECKING:
    from semistream.master import FileMaster

__all__ = ["Standards"]

_SECONDS = 0.03  # of reads in each way, in a turn


class Standards:
    """Times reads of a master's pages, turn by turn."""

    def __init__(self, master: FileMaster) -> None:
        self._master, self._draw = master, np.random.default_rng(0)
        self._spent: dict[str, list[float]] = defaultdict(list)

    def turn(self) -> None:
        """Time each way to read once."""
        for way, seconds in time_reads(self._master, _SECONDS, self._draw):
            self._spent[way].append(seconds)

    @property
    def seconds(self) -> dict[str, float]:
        """What a read takes, by way to read."""
        return {way: float(np.median(spent)) for way, spent in self._spent.items()}
