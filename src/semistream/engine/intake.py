"""Batches of the stream are cut into chunks: rows with their codes, as many as have room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.keys import null_keys
from semistream.arrow.types import decode, row_bytes
from semistream.engine.window import Chunk, same_sizes

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.engine.window import Window
    from semistream.metrics import Metrics
    from semistream.spec import JoinSpec

__all__ = ["Intake"]


class Intake:
    """Takes the first rows of a batch, and counts them.

    Parameters
    ----------
    spec
        The join.
    window
        Where rows may have to wait.
    metrics
        Where rows are counted.
    """

    def __init__(self, spec: JoinSpec, window: Window, metrics: Metrics) -> None:
        self._spec, self._master = spec, spec.master
        self._window, self._metrics = window, metrics
        self._is_plain = spec.plain_stream == spec.stream

    def for_window(self, batch: pa.RecordBatch) -> Chunk:
        """Return the longest prefix of the batch that fits a quarter of the window."""
        return self.with_pages(self._chunk(self._quarter(batch)))

    def for_lookup(self, batch: pa.RecordBatch, most: int) -> Chunk:
        """Return the longest prefix of the batch that is looked up in one call."""
        batch = batch.slice(0, most)
        if not (self._is_plain and self._spec.files.index.first_part is None):
            batch = self._quarter(batch)  # rows are decoded, or may have to wait: both take memory
        return self._chunk(batch)

    def with_pages(self, chunk: Chunk) -> Chunk:
        """Find the page of each row that may have a match."""
        pages = self._master.page_of(chunk.codes)
        pages[chunk.pages < 0] = -1
        return replace(chunk, pages=pages)

    def sizes(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Return the bytes of each row."""
        width = self._window.cost.width
        if width is not None:
            return same_sizes(width, rows.num_rows)
        return row_bytes(rows).astype(np.int32)

    def _quarter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the longest prefix that fits a quarter of the window, or what of it is free."""
        cost, room = self._window.cost, self._next_room()
        count = max(1, cost.rows(room, cost.least))
        batch = batch.slice(0, count)
        if cost.width is None:
            each = cost.fixed + cost.factor * self.sizes(batch)
            count = max(1, int(np.searchsorted(np.cumsum(each), room, side="right")))
            batch = batch.slice(0, count)
        return batch

    def _next_room(self) -> int:
        """Return the bytes of the window that the next chunk may fill.

        Rows that fit behind the last one go there: a batch that ends in the middle of a quarter
        would otherwise leave the window with room that nothing uses until a quarter is gone again.
        """
        capacity, free = self._window.capacity, self._window.free
        quarter = int(min(capacity, self._window.cost.largest)) // 4
        return min(quarter, free) if 4 * free >= quarter else quarter

    def _chunk(self, batch: pa.RecordBatch) -> Chunk:
        """Return rows with their codes; a page is 0 where there may be a match, else −1."""
        rows = self._plain(batch)  # not before it is cut: a dictionary may hide any size
        columns = [rows.column(name) for name in self._spec.stream_keys]
        codes = self._master.keys.encode(columns)
        self._metrics.rows_in += rows.num_rows
        self._metrics.null_keys += null_keys(columns)
        pages = np.zeros(len(codes.values), dtype=np.int32)
        if not codes.all_valid:
            pages[~codes.valid] = -1
            self._metrics.unmatchable += int(np.count_nonzero(pages))
        return Chunk(rows, codes.values, pages, self.sizes(batch))

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._is_plain:
            return batch
        columns = [decode(column) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._spec.plain_stream)
