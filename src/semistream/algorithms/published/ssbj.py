"""SSBJ: the cache inequality beside MESHJOIN's scan, for a master without an index."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semistream.algorithms.published.meshjoin import Meshjoin
from semistream.algorithms.published.parts.inequality import CacheInequality

if TYPE_CHECKING:
    from semistream.engine.plan import Plan, Task

__all__ = ["Ssbj"]


class Ssbj(CacheInequality, Meshjoin):
    """Hold each join value where it takes less memory; scan the master for the rows that wait.

    The cache phase answers rows whose join value the cache inequality has put into the cache; the
    disk phase is MESHJOIN's. Since the scan meets every page once a round, the rows that a page
    finds waiting for a join value are those of one queue length: the n of the inequality, exactly.

    Parameters
    ----------
    buffer
        The disk buffer, as for MESHJOIN.

    Notes
    -----
    From the papers (its abstract, MOIJ's section II and PCSRJ's section 2): both phases, the cache
    inequality, a cache whose size is free to move, no index, m:n. Decided here: eviction as MOIJ
    has it, with a round of the scan for the length of the queue; what the cache takes from the
    window, the pace of the stream (w rows for every b pages) loses at once.

    References
    ----------
    Naeem, Weber, Lutteroth: A Memory-Optimal Many-to-Many Semi-Stream Join, Distributed and
    Parallel Databases 2019.
    """

    name = "ssbj"
    paper = "Naeem, Weber, Lutteroth: A Memory-Optimal Many-to-Many Semi-Stream Join, DAPD 2019"

    @classmethod
    def plan(cls, task: Task, **options: Any) -> Plan:  # noqa: ANN401
        """Split the budget: a disk buffer, output, what cache and window divide between them."""
        scan = cls.scan(task, least=cls.least_divided(task), **options)
        parts, settings = cls.divided(task, task.fixed(scan))
        return task.split(cls.name, parts, replace(settings, buffer_pages=scan))

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self._round_began: int | None = None  # in stream rows
        self._round_rows: int | None = None

    def next_pages(self) -> range:
        """Choose the next pages of the scan; measure its rounds in stream rows."""
        if self._next == 0:
            rows = self.engine.metrics.rows_in
            if self._round_began is not None:
                self._round_rows = rows - self._round_began
            self._round_began = rows
        return super().next_pages()

    def queue_rows(self) -> int:
        """Return the stream rows that the last round of the scan took; none is judged before it."""
        unknown = self.engine.metrics.rows_in + 1
        return unknown if self._round_rows is None else max(1, self._round_rows)

    def after_admission(self) -> None:
        """Move rows into and out of the cache; the scan then paces what the window now holds."""
        super().after_admission()
        task, window = self.engine.task, self.engine.window
        self._window_rows = task.cost.rows(window.capacity, task.stream_row)
