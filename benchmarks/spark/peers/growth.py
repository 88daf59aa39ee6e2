"""Enrichment as the master grows, and on one core and two."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarks.spark.data import Products, Sales
from benchmarks.spark.engine import EngineError, Engines
from benchmarks.spark.grid import DROPPED
from benchmarks.spark.queries import Batches, Enough, time_batches
from benchmarks.spark.systems import Setting
from benchmarks.spark.systems.ours import ENRICH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.peers.grid import PeersGrid

__all__ = ["measure_cores", "measure_growth", "settings_of_growth"]

_COMPILING = 3  # runs that do not count: meanwhile the JVM compiles what runs often


def settings_of_growth(grid: PeersGrid, folder: Path) -> list[tuple[Setting, int]]:
    """Give every R, with a share of it as memory and a constant, and rows of a batch."""
    return [
        (Setting(products, "left", memory, {"read": read}), batch_rows)
        for products in (Products(rows, folder) for rows in grid.growth)
        for memory in dict.fromkeys((int(grid.share * products.bytes), grid.growth_memory))
        for read in ("mapped", "direct")
        for batch_rows in (max(grid.batch_rows), min(grid.batch_rows))
    ]


def measure_growth(
    grid: PeersGrid, folder: Path, engines: Caller, order: Random, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give times of large and small batches as R grows.

    The order is drawn, and Spark has run before: else whatever came first would be the slowest.
    """
    settings = settings_of_growth(grid, folder)
    say("growth: Spark warms up")
    for at, batch_rows in settings[:2]:
        with suppress(EngineError):
            _timed(grid, engines, at, _batches(grid, at.products, batch_rows))
    for at, batch_rows in order.sample(settings, len(settings)):
        about = {"rows": at.products.rows, "memory": at.memory, **at.options}
        say(f"growth: R = {at.products.rows:,}, {at.memory >> 20} MiB, {batch_rows:,} rows a batch")
        try:
            yield about | {"batch_rows": batch_rows} | _grown(grid, engines, at, batch_rows)
        except EngineError as error:
            yield about | {"batch_rows": batch_rows, "failed": str(error)}


def _grown(grid: PeersGrid, engines: Caller, at: Setting, batch_rows: int) -> dict[str, Any]:
    batches = _batches(grid, at.products, batch_rows)
    return {"milliseconds": [_timed(grid, engines, at, batches) for _ in range(grid.rounds)]}


def measure_cores(
    grid: PeersGrid, folder: Path, config: dict[str, str], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give times on one processor and on two: all of Spark, Java and Python, is kept to them."""
    products = Products(min(grid.rows), folder)
    at = Setting.of(products, "left", grid.share)
    batches = _batches(grid, products, max(grid.batch_rows))
    allowed = sorted(os.sched_getaffinity(0))
    for _ in range(grid.rounds):
        for count in (1, 2):
            say(f"on {count} of {len(allowed)} processors")
            os.sched_setaffinity(0, allowed[:count])  # what is started from here has it too
            try:
                with Engines({"main": f"local[{count}]"}, config) as engines:
                    for _ in range(_COMPILING):
                        _timed(grid, engines, at, batches)
                    took = _timed(grid, engines, at, batches)
            finally:
                os.sched_setaffinity(0, allowed)
            yield {"cores": count, "batch_rows": max(grid.batch_rows), "milliseconds": took}


def _timed(grid: PeersGrid, engines: Caller, at: Setting, batches: Batches) -> list[int]:
    enough = Enough(DROPPED, grid.seconds, least=2)
    took: list[int] = engines.call("main", time_batches, ENRICH, at, batches, grid.limit, enough)
    return took


def _batches(grid: PeersGrid, products: Products, batch_rows: int) -> Batches:
    sales = Sales(products.keys, 1.0, batch_rows, grid.batches_of(batch_rows), absent=grid.absent)
    return Batches(sales.prepare(products.folder), sales.files, sales.batches)
