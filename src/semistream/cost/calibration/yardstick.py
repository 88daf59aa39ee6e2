"""A yardstick: how fast the machine is just now, for machines that others use as well."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from semistream.join import Join

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from semistream.master import Master

__all__ = ["Yardstick"]

_SECONDS = 0.025
_ROWS = 64  # looked up at a time


class Yardstick:
    """An INLJ that is run for a moment: a read and a fixed step for each row, and nothing else.

    What it takes beside a measurement, to what it takes in the median, tells how much of a slow
    measurement is the machine's: on a shared one the same work takes a third longer or less from
    one minute to the next.

    Parameters
    ----------
    master
        What is measured with, read in the same way.
    batches
        Some of the stream.
    """

    def __init__(self, master: Master, batches: Sequence[pa.RecordBatch]) -> None:
        least = 16 * master.statistics.largest_part
        self._join = Join(
            master, batches[0].schema, on="key", memory=least, algorithm="inlj", filter=False
        )
        pieces = [b.slice(start, _ROWS) for b in batches[:4] for start in range(0, 4096, _ROWS)]
        self._pieces = itertools.cycle(pieces)

    def __call__(self) -> float:
        """Give the seconds that a row takes now."""
        rows, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < _SECONDS:
            piece = next(self._pieces)
            for work in (self._join.offer(piece), self._join.drain()):
                for _ in work:
                    pass
            rows += piece.num_rows
        return spent / max(1, rows)
