"""Whole pages of the master held as rows, so that they answer before the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistream.engine.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.engine.plan import Task
    from semistream.master import Master

__all__ = ["PageCache"]


class PageCache(Cache):
    """A cache of which pages, not join values, enter and leave.

    Parameters
    ----------
    master
        The master whose pages are held; only pages of one part may be.
    capacity
        The most bytes that it will ever have.
    """

    def __init__(self, master: Master, capacity: int) -> None:
        super().__init__(master.page_schema, capacity)
        self._master = master

    @staticmethod
    def page_price(task: Task) -> int:
        """Return the bytes of the largest page, held as rows with their index."""
        rows = int(task.spec.files.index.rows.max(initial=0))
        return int(task.cache_cost(rows, task.page_bytes)) + 1

    def asked(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the pages that are held, and how often each was asked for."""
        starts, _ = self.values()
        pages, owner = np.unique(self._master.page_of(self.codes[starts]), return_inverse=True)
        hits = np.bincount(owner, weights=self.hits[starts], minlength=len(pages))
        return pages, hits.astype(np.int64)

    def rows_of(self, pages: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return which rows are of these pages."""
        return np.isin(self._master.page_of(self.codes), np.fromiter(pages, dtype=np.int32))

    def exchange(self, leave: set[int], enter: Iterable[pa.RecordBatch]) -> None:
        """Let pages leave, then take others in, one at a time; all counts start anew."""
        if leave:
            self.epoch(lambda cache: ~self.rows_of(leave))  # noqa: ARG005 - it is this one
        for page in enter:
            self.load(page)
        self.epoch()
        self.hits[:] = 0
