"""All that is measured on Spark, into one record."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.spark.engine import EngineError, Engines
from benchmarks.spark.grid import DROPPED
from benchmarks.spark.queries import versions
from benchmarks.spark.routing import measure_routing
from benchmarks.spark.single import measure_single
from benchmarks.spark.warmth import measure_warmth
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.grid import SparkGrid

__all__ = ["engines_for", "measure_spark", "steps"]


def steps() -> int:
    """Give how many records `measure_spark` gives."""
    return 3


def engines_for(grid: SparkGrid) -> Engines:
    """Give the processes that a grid needs."""
    masters = {"main": "local[2]"}
    masters |= {f"local[{workers}]": f"local[{workers}]" for workers in grid.workers}
    config = {
        "spark.driver.memory": grid.driver_memory,
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    return Engines(masters, config)


def measure_spark(
    grid: SparkGrid, folder: Path, engines: Caller, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give the record after every step, each time with more in it."""
    say("starting Spark")
    record: dict[str, Any] = {
        "kind": "spark",
        "what": "milliseconds of micro-batches on Spark, of enrichment and of others",
        "machine": describe() | engines.call("main", versions),
        "grid": asdict(grid),
        "dropped": DROPPED,
        "failed": {},
    }
    say("batches of a single row")
    parts: dict[str, Callable[[], Any]] = {
        "single": lambda: measure_single(grid, folder, engines),
        "routing": lambda: list(measure_routing(grid, folder, engines, say)),
        "warmth": lambda: measure_warmth(grid, folder, engines, say),
    }
    for name, measure in parts.items():
        try:
            record[name] = measure()
        except EngineError as error:
            record["failed"][name] = str(error)
        yield record
