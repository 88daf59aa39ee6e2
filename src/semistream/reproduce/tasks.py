"""PCSRJ on Spark: a CACHEJOIN in each task, rows routed by the page of their key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.bench.run import rounded
from semistream.enrich import enrich
from semistream.reproduce.measure import middle
from semistream.spark.bench.engine import Engines
from semistream.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from semistream.reproduce.cells import Cell, Group
    from semistream.reproduce.measure import Bench

    Facts = dict[str, Any]

__all__ = ["on_spark"]

_CONFIG = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
_NAME = "tasks"
_MOST_ROUNDS = 6  # of whole streams, after one that warms up


def on_spark(group: Group, bench: Bench, folder: Path) -> Iterator[tuple[Cell, Facts]]:
    """Join the stream in so many tasks at once, each algorithm in turn, the first time untimed."""
    tasks, stream = int(group.cells[0].x), _stream(group, bench, folder)
    rows = sum(batch.num_rows for batch in bench.data.batches)
    spent: dict[Cell, list[float]] = {cell: [] for cell in group.cells}
    rounds = 1 + min(_MOST_ROUNDS, bench.scale.pace.rounds)
    with Engines({_NAME: f"local[{tasks}]"}, _CONFIG) as engines:
        for _ in range(rounds):
            for cell in group.cells:
                how = {"memory": cell.memory, "algorithm": cell.series.algorithm, "tasks": tasks}
                asked = str(stream), str(bench.data.master.path), how
                spent[cell].append(engines.call(_NAME, _seconds, *asked))
    for cell, seconds in spent.items():
        samples = [rounded(rows / each) for each in seconds[1:]]
        yield cell, {"value": middle(samples), "samples": samples, "memory": cell.memory}


def _stream(group: Group, bench: Bench, folder: Path) -> Path:
    """Write the stream to a file that Spark reads."""
    path = folder / f"stream-{group.rows}-{group.exponent:g}.parquet"
    if not path.exists():
        draft = path.with_suffix(".draft")
        pq.write_table(pa.Table.from_batches(bench.data.batches), draft)
        draft.rename(path)
    return path


def _seconds(stream: str, master: str, how: dict[str, Any]) -> float:
    """Join the stream to its end, where there is a session; give the seconds."""
    rows = session().read.parquet(stream)
    joined = enrich(rows, master, on="key", read="direct", partition="key", name="pcsrj", **how)
    start = time.perf_counter()
    joined.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start
