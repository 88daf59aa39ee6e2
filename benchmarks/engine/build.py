"""How a master is built within its memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.engine.workload import BATCH_ROWS
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.memory import PeakMemory
from benchmarks.harness.record import Record
from benchmarks.harness.table import Sheet
from semistream import build_master
from semistream.cli.terminal import build_bar
from semistream.units import format_bytes
from semistream.workloads import Zipf, master_rows


@dataclass(frozen=True)
class BuildGrid(Grid):
    """The size of the master."""

    rows: int = option(20_000_000, "Rows of the master.")
    row_bytes: int = option(120, "Bytes per row.")
    memory: str = option("1GB", "Memory for sorting.")


def shuffled_master(rows: int, row_bytes: int = 120) -> pa.RecordBatchReader:
    """Return a master's rows in scattered order, made as they are read."""
    scatter = Zipf(rows, 0.0)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, BATCH_ROWS):
            ranks = np.arange(start, min(start + BATCH_ROWS, rows)) + 1
            yield master_rows(scatter.key_of(ranks), row_bytes=row_bytes)

    first = master_rows(np.arange(1), row_bytes=row_bytes)
    return pa.RecordBatchReader.from_batches(first.schema, batches())


def measure(job: Job[BuildGrid]) -> Iterator[None]:
    """Build a large master from unsorted rows; show the time and the memory that it took."""
    grid = job.grid
    with tempfile.TemporaryDirectory(dir=".") as folder, build_bar() as progress:
        source, path = shuffled_master(grid.rows, grid.row_bytes), Path(folder) / "master"
        start = time.perf_counter()
        with PeakMemory() as peak:
            master = build_master(source, path, key="key", memory=grid.memory, progress=progress)
        seconds = time.perf_counter() - start
        job.record |= asdict(grid) | {
            "seconds": seconds,
            "rows_a_second": grid.rows / seconds,
            "grown_bytes": peak.grown,
            "pages": master.verify(),
        }
    yield


def sheets(record: Record) -> Iterator[Sheet]:
    """Return the one build."""
    heads = ("", "seconds", "rows/s", "memory", "the process grew by", "pages verified")
    row = (
        f"{record['rows']:,} rows × {record['row_bytes']} B",
        f"{record['seconds']:.1f}",
        f"{record['rows_a_second']:,.0f}",
        record["memory"],
        format_bytes(record["grown_bytes"]),
        f"{record['pages']:,}",
    )
    yield Sheet("Building a master from rows in scattered order", heads, (row,))


BUILD = Benchmark(
    "build", "a master built from rows in scattered order", BuildGrid, measure, sheets
)
