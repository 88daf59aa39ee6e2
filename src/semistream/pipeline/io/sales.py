"""The built-in workload, by row number: anyone can make any range of it again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.workloads import Stream

__all__ = ["Sales"]

BLOCK = 50_000
"""Rows that share a seed; a multiple of 10, for quantities follow from the row number so."""


@dataclass(frozen=True)
class Sales:
    """A stream of sales cut into blocks, each with a seed that follows from its number.

    Examples
    --------
    >>> from semistream.workloads import Stream, Zipf
    >>> sales = Sales(Stream(Zipf(100), seed=1))
    >>> [row] = [row for batch in sales.rows(70_000, 70_001) for row in batch.to_pylist()]
    >>> row["sale"], row == next(sales.rows(60_000, 80_000)).to_pylist()[10_000]
    (70000, True)
    """

    stream: Stream

    @property
    def schema(self) -> pa.Schema:
        """The columns; what fills a row up is of variable length, as Spark has it."""
        is_fixed = pa.types.is_fixed_size_binary
        fields = [f.with_type(pa.binary()) if is_fixed(f.type) else f for f in self.stream.schema]
        return pa.schema(fields)

    def rows(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Make the rows from ``start`` to before ``end``, a block or less at a time."""
        for block in range(start // BLOCK, -(-end // BLOCK)):
            first = block * BLOCK
            low, high = max(start, first) - first, min(end, first + BLOCK) - first
            yield self._block(block, high).slice(low)

    def _block(self, block: int, rows: int) -> pa.RecordBatch:
        """Make the first rows of a block."""
        seed = np.random.SeedSequence([self.stream.seed, block]).generate_state(1, np.uint64)[0]
        drift = self.stream.drift_at
        later = None if drift is None else max(0, drift - block * BLOCK)
        batch = next(replace(self.stream, seed=int(seed >> 1), drift_at=later).batches(rows, BLOCK))
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if "sale" in columns:
            columns["sale"] = pc.add(columns["sale"], block * BLOCK)
        arrays = [columns[field.name].cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
