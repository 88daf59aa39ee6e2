"""What a model is given, and what all models share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from semistream.arrow.types import row_width
from semistream.cost.loop import Loop
from semistream.cost.queue import Groups, grouped
from semistream.cost.unit_costs import Fit, Shape
from semistream.engine.output import gathered_schema
from semistream.master.files.filter import KeyFilter

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.cost.demand import Demand
    from semistream.cost.queue import Queue
    from semistream.engine.plan import Plan, Task

__all__ = ["FULL", "SETTLED", "Setting"]

FULL = 7 / 8
"""How full a window is in the mean: when a quarter is gone, as much is let in."""
SETTLED = 1e8
"""Stream rows after which a join is what it will be: some minutes."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A join as a model sees it: its plan, and what the stream asks of the master."""

    task: Task
    plan: Plan
    demand: Demand
    fit: Fit
    age: float = SETTLED
    """Stream rows that the join has had."""
    batch: int = 0
    """Stream rows that are offered at once, 0 where that is not known."""

    # -- sizes, by the papers' symbols ------------------------------------------------------

    @property
    def page_bytes(self) -> int:
        """Bytes of a page (v_P)."""
        return self.task.page_bytes

    @property
    def pages(self) -> int:
        """Pages of R (N_R)."""
        return self.demand.pages

    @cached_property
    def duplicates(self) -> float:
        """Master rows of a join value that is asked for (the m of m:n)."""
        if self.demand.matches is not None:
            return self.demand.matches
        statistics = self.task.spec.files.statistics
        return statistics.rows / max(1, statistics.values)

    @cached_property
    def cached_value(self) -> float:
        """Bytes that a join value takes in the cache: m·v_R, index included."""
        each: float = self.task.cache_cost(1, self.task.spec.files.row_bytes)
        return self.duplicates * each

    @cached_property
    def shape(self) -> Shape:
        """The columns of stream and output."""
        spec = self.task.spec
        payload = gathered_schema(spec)
        widths = [row_width(field.type) for field in payload]
        known = sum(width for width in widths if width is not None)
        # Of what varies, only the mean over all columns of the master is known.
        rest = max(0.0, spec.files.row_bytes - 8 - known) if None in widths else 0.0
        return Shape(
            stream_columns=len(spec.stream),
            stream_bytes=self.task.stream_row,
            payload_columns=len(payload),
            payload_bytes=known + rest,
        )

    def component(self, name: str) -> int:
        """Give the bytes of a component of the plan, 0 where it has none."""
        return int(self.plan.components.get(name, 0))

    def rows(self, window: float) -> float:
        """Give how many rows a window of so many bytes holds (h_S)."""
        return max(1.0, self.task.cost.rows(int(window), self.task.stream_row))

    def waiting(self, window: float) -> float:
        """Give how many rows wait in the mean."""
        return FULL * self.fit.fill * self.rows(window)

    # -- what the stream asks ---------------------------------------------------------------

    @property
    def known_absent(self) -> float:
        """The share of stream rows that the filter tells to have no match."""
        words, master = self.task.filter_words, self.task.spec.master
        if not words:
            return 0.0
        return self.demand.absent * (1 - KeyFilter.false_positives(words, master.statistics.values))

    @property
    def matching(self) -> float:
        """The share of stream rows that have a match."""
        return 1.0 - self.demand.absent

    def page_shares(self, cached: float = 0.0) -> npt.NDArray[np.float64]:
        """Give the share of stream rows that wait for each page, some keys being in the cache."""
        return self.matching * self.demand.page_shares(cached) + self._unknown_a_page

    def held_pages(self, count: int) -> tuple[float, npt.NDArray[np.float64]]:
        """Give the share of stream rows that the hottest pages answer, and who waits for a page.

        A row that a held page lacks waits for it like any other.
        """
        shares = np.sort(self.demand.page_shares())[::-1]
        hits = self.matching * float(shares[:count].sum())
        shares[:count] = 0.0
        return hits, self.matching * shares + self._unknown_a_page

    @property
    def silent(self) -> float:
        """The share of stream rows that wait, and of which nothing comes out."""
        return self._unknown if self.task.spec.how in {"inner", "semi"} else 0.0

    @property
    def _unknown(self) -> float:
        """The share of stream rows that have no match, and wait for a page all the same."""
        return self.demand.absent - self.known_absent

    @property
    def _unknown_a_page(self) -> float:
        """The share of stream rows that wait for a page which does not have them."""
        return self._unknown / self.pages

    def groups(self, cached: float = 0.0) -> Groups:
        """Give the same, in classes of pages."""
        return grouped(self.page_shares(cached))

    def hit(self, cached: float) -> float:
        """Give the share of stream rows that so many of the hottest keys answer."""
        return self.matching * self.demand.hit(cached)

    def loop(self, queue: Queue, window: float, *, hits: float = 0.0, **more: float) -> Loop:
        """Give the loop that brings a page for a row, as often as ``queue`` says."""
        w = 1 / max(queue.reads, 1e-12)
        before = hits + self.known_absent
        return Loop(
            w_S=w * (1 - before),
            w_N=w * hits,
            w_F=w * self.known_absent,
            silent=w * self.silent,
            read_bytes=self.page_bytes,
            output=self.duplicates,
            window_bytes=window,
            **more,  # type: ignore[arg-type]
        )
