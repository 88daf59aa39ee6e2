"""HYBRIDJOIN: index access by the oldest key that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.engine.algorithm import Algorithm

if TYPE_CHECKING:
    from semistream.engine.plan import Plan, Task

__all__ = ["Hybridjoin"]


class Hybridjoin(Algorithm):
    """Bring the page of the oldest row; all rows that it answers leave.

    Nothing is answered before the window. Every page that is read answers at least one row, and
    no row waits for ever, for each comes to be the oldest.

    Notes
    -----
    From the paper: the choice of page, the eviction of all matches. Decided here: when the window
    is full, rows enter when a quarter of it is free, not after each page; absent rows, which the
    paper excludes, leave when their page has come.

    References
    ----------
    Naeem, Dobbie, Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 2011.
    """

    name = "hybridjoin"
    paper = "Naeem, Dobbie, Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 2011"

    @classmethod
    def plan(cls, task: Task, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: one page, output, and the window."""
        return task.split(cls.name, task.fixed(1))

    def next_pages(self) -> range:
        """Choose the page of the oldest row."""
        return self.around_oldest()
