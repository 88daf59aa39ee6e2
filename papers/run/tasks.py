"""PCSRJ on Spark: a CACHEJOIN in each task, rows routed by the page of their key."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.samples import rounded
from benchmarks.spark.engine import Engines
from papers.run.cells import Cell, Group
from papers.run.measure import Bench, middle
from semistream.api import enrich
from semistream.spark.cluster.session import session

Facts = dict[str, Any]


_CONFIG = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
_NAME = "tasks"


def on_spark(group: Group, bench: Bench, folder: Path) -> Iterator[tuple[Cell, Facts]]:
    """Join the stream in so many tasks at once, each cell in turn, the first time untimed.

    Unless it is all there is, as in a quick run.
    """
    stream = _stream(group, bench, folder)
    rows = pq.read_metadata(stream).num_rows
    spent: dict[Cell, list[float]] = {cell: [] for cell in group.cells}
    most = max(int(cell.x) for cell in group.cells)
    with Engines({_NAME: f"local[{most}]"}, _CONFIG) as engines:
        for _ in range(1 + bench.scale.pace.rounds // 4):
            for cell, seconds in spent.items():
                asked = str(stream), str(bench.data.master.path), int(cell.x), _how(cell)
                seconds.append(engines.call(_NAME, _seconds, *asked))
    for cell, seconds in spent.items():
        samples = [rounded(rows / each) for each in seconds[1:] or seconds]
        yield cell, {"value": middle(samples), "samples": samples, "memory": cell.memory}


def _how(cell: Cell) -> dict[str, Any]:
    own = {"memory": cell.memory, "algorithm": cell.series.algorithm, "tasks": int(cell.x)}
    return {**own, "read": "direct", "partition": "key", "check": False}  # one host: this one


def _stream(group: Group, bench: Bench, folder: Path) -> Path:
    """Write the stream to a file that Spark reads."""
    name = f"stream-{group.rows}-{group.exponent:g}-{bench.scale.spark_rows}.parquet"
    path = folder / name
    if not path.exists():
        draft = path.with_suffix(".draft")
        rows = pa.Table.from_batches(bench.data.batches)
        pq.write_table(rows.slice(0, bench.scale.spark_rows), draft)
        draft.rename(path)
    return path


def _seconds(stream: str, master: str, tasks: int, how: dict[str, Any]) -> float:
    """Join the stream to its end, where there is a session; give the seconds."""
    rows = session().read.parquet(stream).coalesce(tasks)
    joined = enrich(rows, master, on="key", name="pcsrj", **how)
    start = time.perf_counter()
    joined.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start
