"""MESHJOIN: a cyclic scan of the master, met by a sliding window of the stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistream.engine.algorithm import Algorithm
from semistream.engine.plan import Settings
from semistream.kernels.chains import ANSWERED
from semistream.units import parse_bytes

if TYPE_CHECKING:
    from semistream.engine.plan import Plan, Task
    from semistream.engine.window import Chunk

__all__ = ["FIXED_IO", "Meshjoin", "MeshjoinSettings", "tuned_buffer"]

_DEFAULT_BUFFER = int(0.93 * 2**20)
FIXED_IO = 0.048 * 2**20
"""What a read costs before its first byte comes, in bytes."""


def tuned_buffer(memory: float, fixed_io: float = FIXED_IO) -> float:
    """Return the disk buffer, in bytes, at which the service rate is highest.

    By equations 1 to 5 of Naeem et al., with a read that costs as much as ``fixed_io`` bytes
    before the first one comes, the rate is proportional to (M − b)·b / (q + b), which is highest at
    b = √(q² + q·M) − q. The default q of 0.048 MB is a fit to the optimum that the paper prints for
    20 MB; it then gives the other printed optima within 4 %.

    Examples
    --------
    >>> [round(tuned_buffer(m * 2**20) / 2**20, 2) for m in (20, 40, 80, 160)]
    [0.93, 1.34, 1.91, 2.72]
    """
    return math.sqrt(fixed_io**2 + fixed_io * memory) - fixed_io


@dataclass(frozen=True)
class MeshjoinSettings(Settings):
    """The rows, w, that enter for every b pages of the scan."""

    w: float = 0.0


class Meshjoin(Algorithm):
    """Scan the master for ever, b pages at a time; rows leave when they have met all of it.

    Nothing is answered before the window. The next pages are the next b of the scan. A chunk of
    stream rows leaves when the scan has come round to where it entered.

    Parameters
    ----------
    buffer
        The disk buffer: ``"tuned"``, ``"default"`` (0.93 MB whatever the budget, as the paper
        recommends for simplicity), or a size.

    Notes
    -----
    From the paper: the scan, the expiry, equation 1's components, both buffers, w rows for every b
    pages. Decided here: the w rows of many iterations enter together, up to a quarter of the window
    (admission has a fixed cost); when no row waits, the scan rests. A row is output when its page
    comes and keeps its room until it expires, as in the paper. A page finds its rows by page number
    (see `engine.window`), not by probing with each of its tuples; MESHJOIN's authors assume no
    order of R and could not.

    References
    ----------
    Polyzotis, Skiadopoulos, Vassiliadis, Simitsis, Frantzell: Meshing Streaming Updates with
    Persistent Data in an Active Data Warehouse, TKDE 2008.
    Naeem, Dobbie, Weber: Comparing Global Optimization and Default Settings of Stream-based Joins
    (the disk buffer, tuned and default).
    """

    name = "meshjoin"
    paper = "Polyzotis et al.: Meshing Streaming Updates with Persistent Data, TKDE 2008"
    options = frozenset({"buffer"})
    frees = False
    done = ANSWERED  # until the row's chunk has met all of R

    @classmethod
    def plan(cls, task: Task, **options: Any) -> Plan:  # noqa: ANN401
        """Split the budget: a disk buffer of b pages, output, and the window."""
        b = cls.scan(task, **options)
        parts = task.fixed(b)
        rows = task.cost.rows(task.memory - parts.total, task.stream_row)
        w = max(0, rows) * b / max(1, task.spec.master.pages)
        return task.split(cls.name, parts, MeshjoinSettings(buffer_pages=b, w=round(w, 1)))

    @staticmethod
    def scan(task: Task, *, buffer: int | str = "tuned", least: int = 0) -> int:
        """Choose the pages that one read brings; a tuned buffer leaves ``least`` bytes."""
        sizes = {"tuned": tuned_buffer(task.memory), "default": _DEFAULT_BUFFER}
        wanted = sizes[buffer] if buffer in sizes else parse_bytes(buffer, "buffer")
        b = min(max(1, round(wanted / max(1, task.page_bytes))), max(1, task.spec.master.pages))
        if buffer == "tuned":  # not at the price of the least window
            rest = task.memory - max(least, task.least_window)
            b = max(1, min(b, rest // max(1, task.page_bytes)))
            while b > 1 and task.fixed(b).total > rest:  # a few: beside pages little depends on b
                b -= 1
        return b

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        settings: Settings = engine.plan.settings
        self._step, self._window_rows = settings.buffer_pages or 1, settings.window_rows or 0
        self._next = 0
        self._chunks: list[list[int]] = []  # rows that had entered with it, pages it has met
        self._entered = 0
        self._due = 0.0  # rows that the scan has made way for

    def next_pages(self) -> range:
        """Choose the next b pages of the scan."""
        total = self.engine.master.pages
        pages = range(self._next, min(self._next + self._step, total))
        self._next = pages.stop % total
        for chunk in self._chunks:
            chunk[1] += len(pages)
        self._due = min(self._quarter, self._due + len(pages) * self._window_rows / total)
        return pages

    @property
    def _quarter(self) -> float:
        """The most rows that the scan makes way for at once."""
        return self._window_rows / 4

    def ready(self, rows: int) -> bool:
        """Let w rows in for every b pages (line 7), or any number when none waits."""
        return self._due >= min(rows, self._quarter) or not self.engine.window.waiting

    def before_admission(self, chunk: Chunk) -> None:
        """Count the pages that the new chunk meets."""
        self._due = max(0.0, self._due - len(chunk))
        self._entered += len(chunk)
        if not self._chunks or self._chunks[-1][1]:
            self._chunks.append([0, 0])
        self._chunks[-1][0] = self._entered

    def end_round(self) -> int:
        """Let the oldest chunk go when it has met all of R; all, when none of them waits."""
        window = self.engine.window
        if not window.waiting:
            self._chunks.clear()
            return len(window)
        if self._chunks and self._chunks[0][1] >= self.engine.master.pages:
            return self._chunks.pop(0)[0] - window.dropped
        return 0
