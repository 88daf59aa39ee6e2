"""What a build reads: rows from anywhere, as pages will hold them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from semistream.errors import OptionError
from semistream.master.format import page_schema
from semistream.plain import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.keys import Keys

__all__ = ["Rows", "Source", "SparkDataFrame"]


@runtime_checkable
class SparkDataFrame(Protocol):
    """A DataFrame of Spark, classic or Connect, known by a method that nothing else has."""

    @property
    def mapInArrow(self) -> Any:  # noqa: ANN401, N802 - the method's types are pyspark's
        """Run a Python function on its rows."""


Source: TypeAlias = (
    pa.Table | pa.RecordBatch | pa.RecordBatchReader | str | os.PathLike[str] | SparkDataFrame
)
_SLICE_BYTES = 8 << 20
_READ_BYTES = 1 << 16
_MOST_ROWS = 1 << 16


@dataclass(frozen=True)
class Rows:
    """The rows of a source, to be read once."""

    reader: pa.RecordBatchReader
    total: int | None
    """How many there are, where that is known beforehand."""

    @classmethod
    def of(cls, source: Source, memory: int) -> Rows:
        """Open a source that is read within about a sixteenth of ``memory``."""
        if isinstance(source, pa.RecordBatchReader):
            return cls(source, None)
        if isinstance(source, pa.RecordBatch):
            source = pa.Table.from_batches([source])
        if isinstance(source, pa.Table):
            return cls(source.to_reader(), source.num_rows)
        if isinstance(source, str | os.PathLike):
            return _parquet(Path(source), memory // 16)
        msg = (
            f"source is a {type(source).__name__}; give a pyarrow Table, RecordBatch or "
            "RecordBatchReader, the path of a Parquet file or folder, or a Spark DataFrame"
        )
        raise OptionError(msg)

    def encoded(self, keys: Keys, memory: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Give how many rows were read, and them as pages hold them, without null keys."""
        for batch in self.reader:
            # By bytes, so that wide rows are few: each slice is copied.
            rows = max(1, int(min(_SLICE_BYTES, memory // 32) // _row_width(batch)))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield part.num_rows, _encoded(part, keys)


def _row_width(batch: pa.RecordBatch) -> float:
    """Estimate the mean bytes of a row when it is decoded."""
    width = 1.0 + float(batch.nbytes) / max(1, int(batch.num_rows))
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            width += int(column.dictionary.nbytes) / max(1, len(column.dictionary))
        elif pa.types.is_run_end_encoded(column.type):
            width += int(column.values.nbytes) / max(1, len(column.values))
    return width


def _encoded(batch: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    codes = keys.encode([batch.column(name) for name in keys.names])
    schema = page_schema(batch.schema, keys)
    columns = [decode(batch.column(name)) for name in schema.names[1:]]
    if not codes.valid.all():
        rows = pa.RecordBatch.from_arrays([pa.array(codes.values), *columns], schema=schema)
        return rows.take(pa.array(np.flatnonzero(codes.valid)))
    owned = [_owned(column) for column in (pa.array(codes.values), *columns)]
    return pa.RecordBatch.from_arrays(owned, schema=schema)


def _owned(column: pa.Array) -> pa.Array:
    """Copy: a slice, or a column of a wider batch, would keep all of its source in memory."""
    if column.null_count:
        return column.take(pa.array(np.arange(len(column))))  # zeros where it is null: see snapshot
    return pa.concat_arrays([column])


def _parquet(path: Path, memory: int) -> Rows:
    if not path.exists():
        msg = f"source={str(path)!r} does not exist; give a Parquet file or a folder of them"
        raise OptionError(msg)
    # Of a file alone, folders named like hive partitions above it are not columns.
    partitioning = "hive" if path.is_dir() else None
    try:
        files = pyarrow.dataset.dataset(path, format="parquet", partitioning=partitioning)
        total = files.count_rows()
    except pa.ArrowInvalid as error:
        msg = f"source={str(path)!r} is not readable as Parquet: {error}"
        raise OptionError(msg) from error
    if not files.files:
        msg = f"source={str(path)!r} holds no Parquet file"
        raise OptionError(msg)
    reader = pa.RecordBatchReader.from_batches(files.schema, _scan(files, total, memory))
    return Rows(reader, total)


def _scan(files: pyarrow.dataset.Dataset, total: int, memory: int) -> Iterator[pa.RecordBatch]:
    """Read file by file, batch by batch; a dataset's scanner would decode whole row groups."""
    groups = [group for file in files.get_fragments() for group in file.row_groups]
    size = sum(group.total_byte_size for group in groups)
    rows = total * min(memory, _SLICE_BYTES) // max(1, size)
    for fragment in files.get_fragments():
        folders = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        options = {"pre_buffer": False, "buffer_size": _READ_BYTES}
        with pyarrow.parquet.ParquetFile(fragment.path, **options) as file:
            # One thread: each would keep memory of its own, and the build waits for the disk.
            for batch in file.iter_batches(max(1, min(rows, _MOST_ROWS)), use_threads=False):
                yield _conformed(batch, files.schema, folders)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, folders: dict[str, Any]) -> pa.RecordBatch:
    """Give a file's rows in the schema of all files, with the values in the folders' names."""
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            value = pa.scalar(folders.get(field.name), field.type)
            columns.append(pa.repeat(value, batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
