"""INLJ: the index nested loop join, the baseline that knows no window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semistream.engine.algorithm import Algorithm

if TYPE_CHECKING:
    from semistream.engine.plan import Plan, Task

__all__ = ["Inlj"]

_STREAM_BUFFER = 50 * 1024  # the papers' stream buffer: 0.05 MB


class Inlj(Algorithm):
    """Look each stream row up by itself: one page a row.

    Nothing is answered before; the next page is that of the row at hand; that row leaves. What
    arrives waits in a stream buffer of 0.05 MB; a larger budget is of no use to this algorithm and
    stays unspent.

    References
    ----------
    Ramakrishnan, Gehrke: Database Management Systems, McGraw-Hill 2000, chapter 14.
    """

    name = "inlj"
    paper = "Ramakrishnan, Gehrke: Database Management Systems (index nested loop join), 2000"
    single = True

    @classmethod
    def plan(cls, task: Task, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: a page, output, and a stream buffer; the rest is spare."""
        parts = task.fixed(1)
        wanted = max(_STREAM_BUFFER, task.least_window)
        spare = max(0, task.memory - parts.total - wanted)
        return task.split(cls.name, replace(parts, spare=spare))

    def next_pages(self) -> range:
        """Choose the page of the oldest row."""
        return self.around_oldest()
