"""Measuring how a master is built within its memory."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from benchmarks.memory import anonymous_bytes
from semistream import build_master
from semistream.system.machine import describe
from semistream.workloads import Zipf, master_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.master import Progress

__all__ = ["PeakMemory", "measure_build", "shuffled_master"]

_BATCH = 65_536


@dataclass
class PeakMemory:
    """The growth of this process's anonymous memory while the context lasts."""

    grown: int = 0

    def __enter__(self) -> Self:
        self._base, self._over = anonymous_bytes(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.grown = max(self.grown, anonymous_bytes() - self._base)
            if self._over.wait(0.001):
                return


def shuffled_master(rows: int, row_bytes: int = 120) -> pa.RecordBatchReader:
    """Give a master's rows in scattered order, made as they are read."""
    scatter = Zipf(rows, 0.0)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, _BATCH):
            ranks = np.arange(start, min(start + _BATCH, rows)) + 1
            yield master_rows(scatter.key_of(ranks), row_bytes=row_bytes)

    first = master_rows(np.arange(1), row_bytes=row_bytes)
    return pa.RecordBatchReader.from_batches(first.schema, batches())


def measure_build(
    rows: int, row_bytes: int, memory: str, folder: Path, progress: Callable[[Progress], None]
) -> dict[str, Any]:
    """Build a master from rows in scattered order; give a record that can be written as JSON."""
    start = time.perf_counter()
    with PeakMemory() as peak:
        source = shuffled_master(rows, row_bytes)
        master = build_master(source, folder, key="key", memory=memory, progress=progress)
    seconds = time.perf_counter() - start
    return {
        "what": "a master built from rows in scattered order",
        "machine": describe(),
        "rows": rows,
        "row_bytes": row_bytes,
        "memory": memory,
        "seconds": seconds,
        "rows_a_second": rows / seconds,
        "grown_bytes": peak.grown,
        "pages": master.verify(),
    }
