"""The memory of all processes of a session, beyond what it has when it only reads the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.spark.bench.data import Products, Sales
from semistream.spark.bench.engine import EngineError, Engines
from semistream.spark.bench.footprint import Footprint
from semistream.spark.bench.peers.contest import prepare
from semistream.spark.bench.queries import Batches, time_batches
from semistream.spark.bench.systems import Setting
from semistream.spark.bench.systems.ours import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.spark.bench.peers.grid import PeersGrid

__all__ = ["measure_memory"]

_MEASURED = ("enrich", "bound", "default", "shuffle-hash", "sort-merge", "broadcast")
_OTHERS = ("jdbc", "delta", "duckdb", "lmdb", "rocksdb", "sqlite", "arrow-memory")
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
    for system in (name for name in (*_MEASURED, *_OTHERS) if name in grid.systems):
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
    with Footprint(engines.pid("main"), itself=True) as footprint:
        engines.call("main", time_batches, system, at, batches, limit)
    return footprint.most
