"""What every algorithm becomes when the budget holds all of the master."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.arrow.memory import concat_rows, take_rows
from semistream.engine.algorithm import Algorithm
from semistream.engine.cache import Cache
from semistream.engine.plan import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from semistream.engine.plan import Plan, Task

__all__ = ["FEW_PAGES", "Resident"]

FEW_PAGES = 4
"""A master of so few pages is held by each task: to load them costs less than to find them."""
_PIECES = 16  # an append copies all that is there: a sixteenth at a time copies it eight times


class Resident(Algorithm):
    """Hold the whole master in memory: no row waits, no page is read twice."""

    name = "resident"
    paper = ""
    complete = True

    @classmethod
    def plan(cls, task: Task, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: a page to load by, output, all of the master; the rest is spare."""
        parts = replace(task.fixed(1), cache=task.resident_bytes)
        return task.split(cls.name, parts, Settings(resident=True))

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self.cache: Cache = Cache(engine.master.page_schema, engine.plan.components.cache)
        parts = engine.master.statistics.parts
        # In few pieces: to append to a column of varying width is to make it anew.
        for some in np.array_split(np.arange(parts), min(parts, _PIECES)) if parts else ():
            self.cache.load(concat_rows([self._read(int(part)) for part in some]))
        self.cache.epoch()

    def _read(self, part: int) -> pa.RecordBatch:
        address = self.engine.read(part)
        self.engine.metrics.pages_read += 1
        batch = self.engine.reader.batch(part, address)
        return take_rows(batch, np.arange(batch.num_rows))

    def next_pages(self) -> range:
        """Nothing ever waits."""
        raise AssertionError
