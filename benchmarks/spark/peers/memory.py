"""The memory of all processes of a session, beyond what it has when it only reads the stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark.data import Products, Sales
from benchmarks.spark.engine import EngineError, Engines
from benchmarks.spark.footprint import Footprint
from benchmarks.spark.peers.contest import prepare
from benchmarks.spark.peers.growth import settings_of_growth
from benchmarks.spark.queries import Batches, time_batches
from benchmarks.spark.systems import Setting
from benchmarks.spark.systems.ours import ENRICH, NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.spark.peers.grid import PeersGrid

__all__ = ["measure_memory", "measured_memory"]

_MEASURED = ("enrich", "enrich-keys", "bound", "default", "shuffle-hash", "sort-merge", "broadcast")
_OTHERS = ("jdbc", "delta", "duckdb", "lmdb", "rocksdb", "sqlite", "arrow-memory")
_ROWS, _COUNT = 100_000, 6
_MANY = 1_000_000  # rows of a batch that fill the budget of a larger master
# A heap grows as far as it may before anything is thrown away: this keeps it near what is in use.
_SMALL_HEAP = "-XX:+UseSerialGC -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10"


def measure_memory(
    grid: PeersGrid, folder: Path, config: dict[str, str], url: str, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give for every system the most that its processes held, each in a session of its own.

    Ours is measured with larger masters too, with a share of each and with a constant: what it
    holds beyond its budget must not grow.
    """
    small = config | {
        "spark.driver.memory": grid.broadcast_memory,
        "spark.driver.extraJavaOptions": _SMALL_HEAP,
    }
    for system, rows, memory in measured_memory(grid):
        say(f"memory: {system}, R = {rows:,}, {memory >> 20} MiB")
        products = Products(rows, folder)
        products.master()  # to build it takes memory that is not the enrichment's
        at = Setting(products, "left", memory, url=url)
        batches = _sales(grid, products, folder)
        about = {"system": system, "rows": rows, "memory": at.memory}
        try:
            yield about | _beyond_idle(system, at, batches, small, grid.limit)
        except EngineError as error:
            yield about | {"failed": str(error)}


def measured_memory(grid: PeersGrid) -> list[tuple[str, int, int]]:
    """Give the systems whose memory is measured, with the rows of the master and the budget."""
    systems = [name for name in (*_MEASURED, *_OTHERS) if name in grid.systems]
    at = Setting.of(Products(grid.memory_rows, Path()), "left", grid.share)
    grown = [(ENRICH, s.products.rows, s.memory) for s, _ in settings_of_growth(grid, Path())]
    all_of = [(name, grid.memory_rows, at.memory) for name in systems]
    return list(dict.fromkeys(all_of + (grown if ENRICH in systems else [])))


def _sales(grid: PeersGrid, products: Products, folder: Path) -> Batches:
    rows = _MANY if products.rows > grid.memory_rows else min(_ROWS, grid.memory_rows)
    sales = Sales(products.keys, 1.0, rows, _COUNT, absent=grid.absent)
    return Batches(sales.prepare(folder), sales.files, _COUNT)


def _beyond_idle(
    system: str, at: Setting, batches: Batches, config: dict[str, str], limit: float
) -> dict[str, Any]:
    with Engines({"main": "local[2]"}, config) as engines:
        if missing := engines.call("main", prepare, system, at):
            return {"failed": missing}
        idle = _peak(engines, NONE, at, batches, limit)
        return {"idle": idle, "busy": _peak(engines, system, at, batches, limit)}


def _peak(
    engines: Engines, system: str, at: Setting, batches: Batches, limit: float
) -> dict[str, int]:
    with Footprint(engines.pid("main"), itself=True) as footprint:
        engines.call("main", time_batches, system, at, batches, limit)
    return footprint.most
