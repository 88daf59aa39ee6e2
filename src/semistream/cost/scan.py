"""How full a scan's window is: chunks enter when there is room, and leave after a round of R.

No chance is in it. A batch of the stream is cut into chunks of a quarter of the window or of what
is free; a chunk enters when the scan has made way for as many rows; and the rows that have left
make room only when they are a quarter of all. How these sizes divide each other decides how much of
the window is used, by up to a quarter, so the admissions of some rounds are counted through.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from semistream.engine.window import RowCost

__all__ = ["Scan", "filled"]

_SETTLED, _ROUNDS = 6, 24  # rounds of R before the count begins, and that are counted
_MOST_CHUNKS = 64  # of a window; finer ones are all alike


class Scan(NamedTuple):
    """What decides how full a scan's window is."""

    steps: int
    """Iterations of a round, N_R/b."""
    capacity: int
    """Bytes of the window."""
    cost: RowCost
    row_bytes: int
    """Bytes of a stream row (v_S)."""
    batch: int
    """Stream rows that are offered at once."""
    missed: float = 1.0
    """The share of them that enter the window."""


def filled(scan: Scan) -> float:
    """Give the rows that enter in a round of R, to those that the window has room for (h_S).

    Examples
    --------
    >>> import pyarrow as pa
    >>> from semistream.engine.window import RowCost
    >>> cost = RowCost.of(pa.schema([("key", pa.int64()), ("sale", pa.int64())]), 500, exact=True)
    >>> [round(filled(Scan(500, size, cost, 17, 65_536)), 2) for size in (2**20, 2**22, 2**23)]
    [0.82, 0.76, 0.76]
    """
    window = _Window(scan)
    marks, ends = [], []  # steps and rows, after a chunk, and where a batch ends
    while window.now < (_SETTLED + _ROUNDS) * scan.steps:
        window.take_in()
        if window.now >= _SETTLED * scan.steps:
            marks.append((window.now, window.entered))
            if window.at_batch_end:
                ends.append(marks[-1])
    (began, before), *_, (now, entered) = ends if len(ends) > 1 else marks
    return min(1.0, (entered - before) / max(1, now - began) / window.pace)


class _Window:
    """A window as `semistream.engine.window` and MESHJOIN keep it, without its rows."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        rows = scan.cost.rows(scan.capacity, scan.row_bytes)
        self.pace = rows / scan.steps
        """Rows for which a step makes way (w)."""
        self.now = self.entered = 0
        self._quarter = rows / 4
        self._batch = max(scan.batch, rows // _MOST_CHUNKS)
        self._left = self._batch
        self._held = self._gone = 0
        self._due = 0.0
        self._chunks: list[tuple[int, int]] = []  # the step at which it leaves, its rows

    @property
    def at_batch_end(self) -> bool:
        """Whether the next chunk is of another batch."""
        return self._left == self._batch

    def take_in(self) -> None:
        """Cut the next chunk, wait until it may enter, let it in."""
        rows = self._next_chunk()
        while not (self._has_room(rows) and self._is_due(rows)):
            self._go_on(rows)
        if not self._fits(self._held + rows):
            self._held, self._gone = self._held - self._gone, 0
        self._held += rows
        self._due = max(0.0, self._due - rows)
        self.entered += rows
        leaves = self.now + self._scan.steps
        if self._chunks and self._chunks[-1][0] == leaves:  # no page came between: they are one
            rows += self._chunks.pop()[1]
        self._chunks.append((leaves, rows))

    def _next_chunk(self) -> int:
        scan = self._scan
        quarter = scan.capacity // 4
        free = scan.capacity - self._bytes(self._held)
        room = min(quarter, free) if 4 * free >= quarter else quarter
        taken = min(max(1, scan.cost.rows(room, scan.row_bytes)), self._left)
        self._left = self._left - taken or self._batch
        return max(1, round(taken * scan.missed))

    def _bytes(self, rows: int) -> int:
        return self._scan.cost(rows, rows * self._scan.row_bytes)

    def _fits(self, rows: int) -> bool:
        return self._bytes(rows) <= self._scan.capacity

    def _has_room(self, rows: int) -> bool:
        if self._fits(self._held + rows):
            return True
        return 4 * self._gone >= self._held and self._fits(self._held - self._gone + rows)

    def _is_due(self, rows: int) -> bool:
        return self._due >= min(rows, self._quarter) or not self._chunks

    def _go_on(self, rows: int) -> None:
        """Go to the step at which the chunk may be due, or the oldest one leaves."""
        steps = self._chunks[0][0] - self.now
        if self._has_room(rows):
            lacking = min(rows, self._quarter) - self._due
            steps = min(steps, ceil(lacking / self.pace - 1e-9))
        self.now += max(1, steps)
        self._due = min(self._quarter, self._due + max(1, steps) * self.pace)
        if self._chunks[0][0] <= self.now:
            self._gone += self._chunks.pop(0)[1]
