"""Enrichment as the master grows, and on one core and two."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from semistream.spark.bench.data import Products, Sales
from semistream.spark.bench.engine import Engines
from semistream.spark.bench.footprint import Footprint
from semistream.spark.bench.grid import DROPPED
from semistream.spark.bench.queries import Batches, Enough, time_batches
from semistream.spark.bench.systems import Setting
from semistream.spark.bench.systems.ours import ENRICH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.spark.bench.engine import Caller
    from semistream.spark.bench.peers.grid import PeersGrid

__all__ = ["measure_cores", "measure_growth"]


def measure_growth(
    grid: PeersGrid, folder: Path, engines: Engines, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give times of large and small batches at every R, at a share of it and at a constant."""
    for rows in grid.growth:
        products = Products(rows, folder)
        for memory in dict.fromkeys((int(grid.share * products.bytes), grid.growth_memory)):
            for read in ("mapped", "direct"):
                at = Setting(products, "left", memory, {"read": read})
                for batch_rows in (max(grid.batch_rows), min(grid.batch_rows)):
                    say(f"growth: R = {rows:,}, {memory >> 20} MiB, {read}, {batch_rows:,}")
                    batches = _batches(grid, products, folder, batch_rows)
                    with Footprint(engines.pid("main"), every=0.5) as footprint:
                        took = [_timed(grid, engines, at, batches) for _ in range(grid.rounds)]
                    about = {"rows": rows, "memory": memory, "read": read, "batch_rows": batch_rows}
                    yield about | {"milliseconds": took, "held": footprint.most}


def measure_cores(
    grid: PeersGrid, folder: Path, config: dict[str, str], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give times on one processor and on two: all of Spark, Java and Python, is kept to them."""
    products = Products(min(grid.rows), folder)
    at = Setting.of(products, "left", grid.share)
    batches = _batches(grid, products, folder, max(grid.batch_rows))
    allowed = sorted(os.sched_getaffinity(0))
    for _ in range(grid.rounds):
        for count in (1, 2):
            say(f"on {count} of {len(allowed)} processors")
            os.sched_setaffinity(0, allowed[:count])  # what is started from here has it too
            try:
                with Engines({"main": f"local[{count}]"}, config) as engines:
                    took = _timed(grid, engines, at, batches)
            finally:
                os.sched_setaffinity(0, allowed)
            yield {"cores": count, "batch_rows": max(grid.batch_rows), "milliseconds": took}


def _timed(grid: PeersGrid, engines: Caller, at: Setting, batches: Batches) -> list[int]:
    enough = Enough(DROPPED, grid.seconds, least=2)
    took: list[int] = engines.call("main", time_batches, ENRICH, at, batches, grid.limit, enough)
    return took


def _batches(grid: PeersGrid, products: Products, folder: Path, batch_rows: int) -> Batches:
    sales = Sales(products.keys, 1.0, batch_rows, grid.batches_of(batch_rows), absent=grid.absent)
    return Batches(sales.prepare(folder), sales.files, sales.batches)
