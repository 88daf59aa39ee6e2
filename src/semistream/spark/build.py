"""Building a master from a Spark DataFrame, as a Spark job.

Spark divides the rows into ranges of their codes and sorts each range, spilling as it always does;
a Python worker cuts each range into pages and writes them beside the target; the driver puts the
files together, in order, without reading them. So memory bounds nothing but what Spark sorts at
once, and a worker holds a few pages.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from semistream.arrow.types import cast
from semistream.errors import OptionError
from semistream.master.arguments import master_folder
from semistream.master.build.build import Progress, report_writes
from semistream.master.build.pages import Counts
from semistream.master.build.parts import Part, Staging, join_parts, write_part
from semistream.master.build.target import Target, check_sizes
from semistream.master.files.drafts import staging_folder
from semistream.master.files.master import FileMaster
from semistream.master.protocol import CODE
from semistream.master.source import Rows
from semistream.spark.types import arrow_schema, check_collations

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from semistream.arrow.keys import Keys

__all__ = ["build_from_dataframe"]

_NUMBERS = ("rows", "first", "last", "bytes", "values", "most_duplicates", "null_keys")
_PART = pa.schema([("name", pa.string()), *((name, pa.int64()) for name in _NUMBERS)])
"""What a task reports of its part: a `Part` and its `Counts`."""


def build_from_dataframe(
    df: DataFrame,
    path: str | os.PathLike[str],
    key: str | Sequence[str],
    page_bytes: int | str,
    filter: bool,  # noqa: A002 - as in build_master
    memory: int | str,
    progress: Callable[[Progress], None],
) -> FileMaster:
    """Build a master from a batch DataFrame; see `semistream.build_master`."""
    size, room = check_sizes(page_bytes, memory, path)
    if df.isStreaming:
        msg = (
            "source is a streaming DataFrame, which has no end; read the same source with "
            "spark.read instead of spark.readStream, or write the stream to a table first"
        )
        raise OptionError(msg)
    # Absolute: executors have another working folder.
    target = Target.of(master_folder(path).absolute(), arrow_schema(df.schema), key, size)
    check_collations(df.schema, target.keys.names)
    with target.building():
        _run(df, Staging(staging_folder(target.folder), target, room, filter), progress)
    return FileMaster.current(target.folder)


def _run(df: DataFrame, staging: Staging, progress: Callable[[Progress], None]) -> None:
    progress(Progress("read", 0, None))
    ranges = _sort_ranges(df, staging.target)
    rows = ranges.mapInArrow(partial(_write, staging), from_arrow_schema(_PART)).collect()
    parts = []
    for row in (row.asDict() for row in rows):
        counts = Counts(*(row.pop(name) for name in Counts.__dataclass_fields__))
        parts.append(Part(**row, counts=counts))
    total = sum(part.rows for part in parts)
    read = total + sum(part.counts.null_keys for part in parts)
    progress(Progress("read", read, read))
    join_parts(parts, staging, report_writes(progress, total))


def _sort_ranges(df: DataFrame, target: Target) -> DataFrame:
    """Return the rows divided by ranges of their codes, each range in order, nulls first.

    The number of ranges is ``spark.sql.shuffle.partitions``, less where adaptive execution finds
    that little data; a number given here would be taken as it is.
    """
    keys = [target.schema.get_field_index(name) for name in target.keys.names]
    # By number: mapInArrow does not take names with dots, nor ones that differ by case alone.
    df = df.toDF(*(f"c{i}" for i in range(len(target.schema))))
    if target.keys.exact:  # the key's order is the code's, and needs no Python
        code = f"c{keys[0]}"
        return df.repartitionByRange(code).sortWithinPartitions(code)
    schema = StructType([*df.schema.fields, StructField(CODE, LongType())])
    ranges = df.mapInArrow(partial(_add_codes, target.keys, keys), schema).repartitionByRange(CODE)
    return ranges.sortWithinPartitions(CODE).drop(CODE)


def _add_codes(
    keys: Keys, columns: list[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        codes = keys.encode([batch.column(i) for i in columns])
        yield batch.append_column(CODE, pa.array(codes.values, mask=~codes.valid))


def _write(to: Staging, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; return one row that describes its part."""
    schema = to.target.schema

    def typed() -> Iterator[pa.RecordBatch]:  # Spark sends timestamps in the session's zone
        for batch in batches:
            columns = [cast(c, f.type) for c, f in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    part = write_part(Rows(pa.RecordBatchReader.from_batches(schema, typed()), None), to)
    yield pa.RecordBatch.from_pylist([vars(part) | vars(part.counts)], schema=_PART)
