"""The built-in Zipf stream as a source of Spark's.

A row is a function of its number and the options, so a batch that is read again, after a crash or
by a task's twin, has the same rows.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from semistream.pipeline.io.sales import BLOCK, Sales
from semistream.workloads import Stream, Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from semistream.pipeline.file.ends import GeneratorSource

__all__ = ["Generator"]


class Generator(DataSource):
    """A source of sales whose keys follow Zipf's law."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "semistream"

    @staticmethod
    def options_of(source: GeneratorSource, partitions: int) -> dict[str, str]:
        """Return the options that make this source, cut into so many partitions a batch."""
        limits = {"rows": source.rows, "rows_per_batch": source.rows_per_batch}
        settings = {"stream": asdict(source.stream), "partitions": partitions, **limits}
        return {"settings": json.dumps(settings)}

    def schema(self) -> StructType:
        """Return the columns."""
        return from_arrow_schema(Sales(self._settings["stream"]).schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Make a reader."""
        return _Reader(**self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        """What `options_of` wrote: executors need no model of a file for it."""
        settings: dict[str, Any] = json.loads(self.options["settings"])
        stream = settings["stream"]
        return settings | {"stream": Stream(**stream | {"zipf": Zipf(**stream["zipf"])})}


class _Rows(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start, self.end = start, end


class _Reader(DataSourceStreamReader):
    """Offsets are row numbers; a batch ends ``rows_per_batch`` after the one before."""

    def __init__(
        self, stream: Stream, partitions: int, rows: int | None, rows_per_batch: int
    ) -> None:
        self._stream, self._partitions = stream, partitions
        self._rows, self._rows_per_batch = rows, rows_per_batch
        self._planned = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"row": 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        end = self._planned + self._rows_per_batch
        return {"row": end if self._rows is None else min(end, self._rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        # Spark also calls this when it starts from a checkpoint, with the last offset there: the
        # only way in which a new reader learns how far the one before has come.
        self._planned = max(self._planned, end["row"])
        return [_Rows(*each) for each in _cut(start["row"], end["row"], self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = partition if isinstance(partition, _Rows) else _Rows(*partition.value)
        return Sales(self._stream).rows(rows.start, rows.end)


def _cut(start: int, end: int, partitions: int) -> list[tuple[int, int]]:
    """Cut a range of rows into parts; at blocks, if they are large, so that none is made twice.

    Examples
    --------
    >>> _cut(0, 100_000, 2), _cut(7, 7, 2)
    ([(0, 50000), (50000, 100000)], [])
    """
    share = -(-(end - start) // partitions)
    cuts = {start + share * i for i in range(1, partitions)}
    if share > 2 * BLOCK:
        cuts = {cut // BLOCK * BLOCK for cut in cuts}
    edges = [start, *sorted(cut for cut in cuts if start < cut < end), end]
    return [(low, high) for low, high in pairwise(edges) if low < high]
