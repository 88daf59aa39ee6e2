"""Sources of a build: rows from anywhere, encoded as pages hold them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from semistream.arrow.types import decode
from semistream.errors import OptionError
from semistream.master.protocol import page_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.arrow.keys import Keys

__all__ = ["Rows", "Source", "SparkDataFrame"]


@runtime_checkable
class SparkDataFrame(Protocol):
    """A DataFrame of Spark, classic or Connect, recognised by a method that nothing else has."""

    @property
    def mapInArrow(self) -> Any:  # noqa: ANN401, N802 - the method's types are pyspark's
        """Run a Python function on its rows."""


@runtime_checkable
class LibraryTable(Protocol):
    """A table that deltalake or pyiceberg loaded."""

    def schema(self) -> Any:  # noqa: ANN401 - the library's own
        """Return its columns."""


Source: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | pa.RecordBatchReader
    | str
    | os.PathLike[str]
    | LibraryTable
    | SparkDataFrame
)
_SLICE_BYTES = 8 << 20  # rows that are encoded, and so copied, at once


@dataclass(frozen=True)
class Rows:
    """The rows of a source, to be read once."""

    reader: pa.RecordBatchReader
    total: int | None
    """Number of rows, where that is known beforehand."""

    @classmethod
    def of(cls, source: object, what: str = "source") -> Rows:
        """Open a source of Arrow rows, which messages call ``what``."""
        if isinstance(source, pa.RecordBatchReader):
            return cls(source, None)
        if isinstance(source, pa.RecordBatch):
            source = pa.Table.from_batches([source])
        if isinstance(source, pa.Table):
            return cls(source.to_reader(), source.num_rows)
        others = (
            ", the place of a Delta or Iceberg table or of Parquet files, or a Spark DataFrame"
            if what == "source"
            else ""
        )
        msg = (
            f"{what} is a {type(source).__name__}; give a pyarrow Table, RecordBatch or "
            f"RecordBatchReader{others}"
        )
        raise OptionError(msg)

    def encoded(self, keys: Keys, memory: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield how many rows were read, and those with a key, as pages hold them."""
        for batch in self.reader:
            # By bytes, so that wide rows are few: each slice is copied.
            rows = max(1, int(min(_SLICE_BYTES, memory // 32) // _row_width(batch)))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield part.num_rows, _encode(part, keys)


def _row_width(batch: pa.RecordBatch) -> float:
    """Estimate the mean bytes of a row when it is decoded."""
    width = 1.0 + float(batch.nbytes) / max(1, int(batch.num_rows))
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            width += int(column.dictionary.nbytes) / max(1, len(column.dictionary))
        elif pa.types.is_run_end_encoded(column.type):
            width += int(column.values.nbytes) / max(1, len(column.values))
    return width


def _encode(batch: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    codes = keys.encode([batch.column(name) for name in keys.names])
    schema = page_schema(batch.schema, keys)
    columns = [decode(batch.column(name)) for name in schema.names[1:]]
    if not codes.valid.all():
        rows = pa.RecordBatch.from_arrays([pa.array(codes.values), *columns], schema=schema)
        return rows.take(pa.array(np.flatnonzero(codes.valid)))
    # Copies: a slice, or a column of a wider batch, would keep all of its source in memory. With
    # `take` values that are null become zeros, so that the same rows have the same checksum.
    copies = [
        c.take(pa.array(np.arange(len(c)))) if c.null_count else pa.concat_arrays([c])
        for c in (pa.array(codes.values), *columns)
    ]
    return pa.RecordBatch.from_arrays(copies, schema=schema)
