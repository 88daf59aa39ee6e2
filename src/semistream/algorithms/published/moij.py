"""MOIJ: the cache inequality decides, join value by join value, where memory goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.algorithms.published.parts.inequality import CacheInequality

if TYPE_CHECKING:
    from semistream.engine.plan import Plan, Task

__all__ = ["Moij"]


class Moij(CacheInequality, Hybridjoin):
    """Hold each join value where it takes less memory: in the cache, or as waiting stream rows.

    A join value with m master rows of v_R bytes, for which n stream rows of v_S bytes wait in a
    full queue, is cached if m·v_R < n·v_S (Theorem 2). Cache and window divide the memory; what one
    gains the other gives.

    Notes
    -----
    From the paper: both phases, the inequality, the moving split, whole join values (m:n), absent
    rows (0:n), eviction every ten iterations. Corrected here: line 15 leaves a row without match in
    H_S for ever, it leaves; line 35 estimates n by the frequency in one iteration, where Theorem 2
    means the whole length of the queue: by line 35 a value that was cached with n = 10 in a queue
    of thousands of rows would go at once. So n is the count of hits, scaled to the rows that arrive
    while a row waits in the queue, and a value is judged when it was counted that long. Decided
    here: v_S and v_R are what a row really costs in window and cache, index included; a join value
    larger than a page is not cached.

    References
    ----------
    Naeem, Mirza, Khan, Sundaram, Jamil, Weber: Big Data Velocity Management: From Stream to
    Warehouse via High Performance Memory Optimized Index Join, IEEE Access 2020.
    """

    name = "moij"
    paper = "Naeem et al.: High Performance Memory Optimized Index Join, IEEE Access 2020"

    @classmethod
    def plan(cls, task: Task, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: one page, output, and what cache and window divide between them."""
        return task.split(cls.name, *cls.divided(task, task.fixed(1)))
