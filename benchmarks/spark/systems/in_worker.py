"""A store in the Python worker, asked in `mapInArrow`: by the whole partition, or row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from benchmarks.spark.data import KEY
from benchmarks.spark.systems.base import TASKS, System
from benchmarks.stores import ENGINES, IN_MEMORY, ByKey, Engine
from benchmarks.stores.building import built
from semistream.spark.types import spark_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from benchmarks.spark.systems.base import Setting

__all__ = ["IN_WORKER", "by_row"]

_CHUNK = 1_000_000  # stream rows at most that are joined at once: here all of a partition
_OUT = 65_536


def by_row(name: str) -> str:
    """Name the system that asks a store row by row."""
    return f"{name}-rows"


def _joining(kind: type[Engine], rows: bool) -> Callable[[DataFrame, Setting], DataFrame]:
    """Give the join with an engine; every row of a query has the same one, kept open."""

    def join(df: DataFrame, at: Setting) -> DataFrame:
        path, schema, how = at.products.path(kind.name), at.products.schema, at.how
        memory = max(at.memory // TASKS, kind.least)

        def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            engine = _opened(kind, path, schema, memory)
            call = engine.join_rows if rows and isinstance(engine, ByKey) else engine.join
            for chunk in _chunks(batches):
                yield from call(chunk, how).to_batches(_OUT)

        added = [spark_field(f, f.name, nullable=True) for f in schema if f.name != KEY]
        return df.mapInArrow(joined, StructType([*df.schema, *added]))

    return join


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put Spark's small batches together: the more rows at once, the fewer keys to ask for."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _CHUNK:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


_open: dict[tuple[object, ...], Engine] = {}


def _opened(kind: type[Engine], path: Path, schema: pa.Schema, memory: int) -> Engine:
    """Give this worker's engine; of another query it keeps none, which might hold all of R."""
    about = (kind, path, memory)
    if about not in _open:
        while _open:
            _open.popitem()[1].close()
        _open[about] = kind(path, schema, memory)
        _open[about].open()
    return _open[about]


def _building(kind: type[Engine]) -> Callable[[Setting], None]:
    def prepare(at: Setting) -> None:
        path = at.products.path(kind.name)
        built(kind, path, at.products.schema, at.memory, at.products.batches)

    return prepare


def _system(kind: type[Engine], rows: bool = False) -> System:
    way = "row by row" if rows else "a partition at once"
    return System(
        f"{kind.name} in the worker, {way}",
        _joining(kind, rows),
        _building(kind),
        lambda _: kind.missing(),
        unique=kind.unique,
    )


IN_WORKER: dict[str, System] = {
    **{kind.name: _system(kind) for kind in (*ENGINES, *IN_MEMORY)},
    **{by_row(kind.name): _system(kind, rows=True) for kind in ENGINES if issubclass(kind, ByKey)},
}
