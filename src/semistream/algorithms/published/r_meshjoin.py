"""R-MESHJOIN: MESHJOIN whose disk buffer is read at once and met in segments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.algorithms.published.meshjoin import Meshjoin, MeshjoinSettings
from semistream.engine.algorithm import positive
from semistream.engine.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.engine.engine import Ints
    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan, Runtime, Task

__all__ = ["RMeshjoin"]


@dataclass(frozen=True)
class RMeshjoinSettings(MeshjoinSettings):
    """Segments of the disk buffer, and the pages of each."""

    l: int = 1  # noqa: E741 - the paper's name
    segment_pages: int = 1


class RMeshjoin(Meshjoin):
    """Read b pages at once, let the window meet them segment by segment, l segments a buffer.

    In MESHJOIN a read and an iteration are the same: b pages decide both what a read costs and into
    how many stages the window is cut. Here a read brings b pages, an iteration meets b/l of them
    and lets that share of rows in and out. So the buffer can be as large as reads want it, and the
    stages as fine as the window wants them. With l = 1 it is MESHJOIN.

    Parameters
    ----------
    buffer
        The disk buffer, as for MESHJOIN.
    l
        Segments of the disk buffer; there are never more than it has pages.

    Notes
    -----
    From the papers (its abstract, and PCSRJ's section 2): the dependency between the partitions of
    the queue and the number of iterations is removed, the disk buffer is split into l > 1 logical
    segments, a change of R's size does not change the disk buffer. Decided here: l = 4, for the
    papers print none; b is a multiple of l; the buffer's size is MESHJOIN's tuned one, which has no
    R in it. A page that `max_wait` asks for displaces the buffer, and the scan reads on from its
    place.

    References
    ----------
    Naeem, Dobbie, Weber, Alam: R-MESHJOIN for Near-Real-Time Data Warehousing, DOLAP 2010.
    """

    name = "r-meshjoin"
    paper = "Naeem, Dobbie, Weber, Alam: R-MESHJOIN for Near-Real-Time Data Warehousing, DOLAP 2010"
    options = frozenset({"buffer", "l"})

    @classmethod
    def plan(
        cls,
        task: Task,
        *,
        l: int = 4,  # noqa: E741 - the paper's name
        **options: Any,  # noqa: ANN401
    ) -> Plan:
        """Split the budget as MESHJOIN does, and the disk buffer into l segments."""
        plan = super().plan(task, **options)
        b = plan.settings.buffer_pages or 1
        segments = min(positive("l", l), b)
        pages = b // segments
        if segments * pages < b:  # what no segment holds is the window's
            buffer = segments * pages * task.page_bytes
            plan = super().plan(task, **{**options, "buffer": buffer})
        settings = RMeshjoinSettings(**plan.settings, l=segments, segment_pages=pages)
        return replace(plan, settings=settings)

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start an engine that reads ahead."""
        return _ReadAhead(task, plan, cls, runtime)

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self._step = engine.plan.settings.segment_pages


class _ReadAhead(Engine):
    """An engine whose reads fill the disk buffer when they go on where the last one ended."""

    def __init__(self, task: Task, plan: Plan, *others: Any) -> None:  # noqa: ANN401
        self._most = plan.settings.buffer_pages or 1
        self._held = np.empty(0, dtype=np.int64)  # where the parts in the disk buffer lie
        self._first = 0  # its first part
        self._expected = 0  # the part with which the scan goes on
        super().__init__(task, plan, *others)

    def sweep(self, parts: Ints) -> Iterator[tuple[slice, Ints]]:
        at = 0
        for run in np.split(parts, np.flatnonzero(np.diff(parts) != 1) + 1):  # pages of several
            part, count = int(run[0]), len(run)  # parts are left out, and read by themselves
            start = part - self._first
            if start < 0 or start + count > len(self._held):
                whole = np.arange(part, part + self._span(part, count))
                start, self._first, (_, self._held) = 0, part, next(super().sweep(whole))
            if part in {0, self._expected}:
                self._expected = part + count
            yield slice(at, at + count), self._held[start : start + count]
            at += count

    def _span(self, part: int, count: int) -> int:
        """Return how many parts to read: those asked for, and more if it is the scan that asks."""
        if part not in {0, self._expected}:
            return count
        left = self.master.statistics.parts - part
        return max(count, min(self._most, left))
