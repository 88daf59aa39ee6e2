"""A batch cut into slices that are small enough to be copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.types import decode, row_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["plain_slices"]


def plain_slices(
    batch: pa.RecordBatch, schema: pa.Schema, room: int, copies: int, beside: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Cut a batch, and bring its rows into their plain types; give slices and what they claim.

    Parameters
    ----------
    batch, schema
        The rows, and their plain schema.
    room
        Bytes that a slice may claim; one row may claim more.
    copies, beside
        How often a row will exist, and what it claims beside.
    """
    start = 0
    while start < batch.num_rows:
        ahead = batch.slice(start, max(1, room // beside))
        claims = np.cumsum(copies * row_bytes(ahead) + beside)
        count = max(1, int(np.searchsorted(claims, room, side="right")))
        # Not decoded before it is cut: a dictionary may hide any size.
        columns = [decode(column) for column in ahead.slice(0, count).columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema), int(claims[count - 1])
        start += count
