"""The memory of all processes of a session, beyond what it has when it only reads the stream."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from semistream.spark.bench.data import Products, Sales
from semistream.spark.bench.engine import EngineError, Engines
from semistream.spark.bench.peers.contest import prepare
from semistream.spark.bench.queries import Batches, time_batches
from semistream.spark.bench.systems import Setting
from semistream.spark.bench.systems.ours import NONE
from semistream.spark.bench.workers import processes_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semistream.spark.bench.peers.grid import PeersGrid

__all__ = ["Footprint", "measure_memory"]

_EVERY = 0.1  # seconds
_MEASURED = ("enrich", "default", "shuffle-hash", "sort-merge", "broadcast", "jdbc", "delta")
_WORKER = ("duckdb", "lmdb", "rocksdb", "sqlite", "arrow-memory")
_ROWS, _COUNT = 100_000, 6
# A heap grows as far as it may before anything is thrown away: this keeps it near what is in use.
_SMALL_HEAP = "-XX:+UseSerialGC -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10"


def measure_memory(
    grid: PeersGrid, folder: Path, config: dict[str, str], url: str, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give for every system the most that its processes held, each in a session of its own."""
    products = Products(grid.memory_rows, folder)
    at = Setting.of(products, "left", grid.share, url)
    sales = Sales(products.keys, 1.0, min(_ROWS, grid.memory_rows), _COUNT, absent=grid.absent)
    batches = Batches(sales.prepare(folder), sales.files, _COUNT)
    small = config | {
        "spark.driver.memory": grid.broadcast_memory,
        "spark.driver.extraJavaOptions": _SMALL_HEAP,
    }
    for system in (name for name in (*_MEASURED, *_WORKER) if name in grid.systems):
        say(f"memory: {system}")
        about = {"system": system, "rows": grid.memory_rows, "memory": at.memory}
        try:
            with Engines({"main": "local[2]"}, small) as engines:
                if missing := engines.call("main", prepare, system, at):
                    yield about | {"failed": missing}
                    continue
                idle = _peak(engines, NONE, at, batches, grid.limit)
                busy = _peak(engines, system, at, batches, grid.limit)
                yield about | {"idle": idle, "busy": busy}
        except EngineError as error:
            yield about | {"failed": str(error)}


def _peak(
    engines: Engines, system: str, at: Setting, batches: Batches, limit: float
) -> dict[str, int]:
    with Footprint(os.getpid()) as footprint:
        engines.call("main", time_batches, system, at, batches, limit)
    return footprint.most


@dataclass
class Footprint:
    """Looks at the processes below one, again and again: what Java's and Python's hold.

    Anonymous and shared memory in proportion, so that what forked processes share counts once;
    not the files that the operating system keeps in memory.
    """

    root: int
    most: dict[str, int] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.is_set():
            self.look()
            time.sleep(_EVERY)

    def look(self) -> None:
        """Look once; the sum of all is the most of one moment."""
        held = {"java": 0, "python": 0}
        for pid in processes_below(self.root):
            held["java" if _is_java(pid) else "python"] += _held(pid)
        held["all"] = sum(held.values())
        self.most = {name: max(size, self.most.get(name, 0)) for name, size in held.items()}


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("java")
    except OSError:
        return False


def _held(pid: int) -> int:
    """Give the bytes of a process that has not ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    found = dict(line.split(":", 1) for line in lines[1:])
    return 1024 * sum(int(found[name].split()[0]) for name in ("Pss_Anon", "Pss_Shmem"))
