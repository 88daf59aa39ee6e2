"""A stream that comes steadily: small micro-batches at fixed times, for minutes."""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql import SparkSession

from semistream.spark.bench.data import KEY, STRIDE, Products
from semistream.spark.bench.engine import EngineError
from semistream.spark.bench.peers.contest import prepare
from semistream.spark.bench.systems import SYSTEMS, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from semistream.spark.bench.engine import Caller
    from semistream.spark.bench.peers.grid import PeersGrid

__all__ = ["SYSTEMS_STEADY", "measure_steady", "sales", "time_steady"]

SYSTEMS_STEADY = ("none", "enrich", "default")
_FIRST = 20  # batches in which code is compiled and caches fill
_FRACTION = 2**52
_SCATTER = 7919  # a prime, so that hot keys are not neighbours


def measure_steady(
    grid: PeersGrid, folder: Path, engines: Caller, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Give for every system the milliseconds of each batch, and when it ended."""
    at = Setting.of(Products(grid.steady_rows, folder), "left", grid.share)
    for system in SYSTEMS_STEADY:
        say(f"{grid.steady_rate:,} rows/s for {grid.steady_seconds:g} s: {system}")
        about = {"system": system, "rows": grid.steady_rows, "memory": at.memory}
        try:
            engines.call("main", prepare, system, at)
            took = engines.call("main", time_steady, system, at, grid)
            yield about | {"milliseconds": took["milliseconds"], "seconds": took["seconds"]}
        except EngineError as error:
            yield about | {"failed": str(error)}


def time_steady(system: str, at: Setting, grid: PeersGrid) -> dict[str, Any]:
    """Run a query on a stream that comes in batches, each at its time; give what each took.

    A batch that is not done when the next is due delays it. The first ones are not given.
    """
    spark, batch = SparkSession.active(), grid.steady_batch
    every = round(1000 * batch / grid.steady_rate)
    writer = SYSTEMS[system].writer(sales(spark, at, batch, every), at)
    with tempfile.TemporaryDirectory(dir=at.products.folder) as checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime=f"{every} milliseconds").start()
        try:
            time.sleep(grid.steady_seconds)
        finally:
            query.stop()
        done = [p for p in query.recentProgress if p.numInputRows][_FIRST:]
    return {
        "milliseconds": [p.durationMs["triggerExecution"] for p in done],
        "seconds": _span([p.timestamp for p in done]),
    }


def _span(moments: list[str]) -> float:
    """Give the seconds between the first batch's start and the last one's."""
    from datetime import datetime  # noqa: PLC0415 - for this alone

    first, last = (datetime.fromisoformat(m) for m in (moments[0], moments[-1]))
    return (last - first).total_seconds()


def sales(
    spark: SparkSession, at: Setting, batch: int, every: int, source: DataFrame | None = None
) -> DataFrame:
    """Make sales in the JVM, some in each batch, their keys as by Zipf's law with exponent 1.

    Of ranks 1 to n the one at n**u, u uniform, has a chance of about 1 to its number.
    """
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch)
    reader = reader.option("numPartitions", 2).option("advanceMillisPerBatch", every)
    rows = reader.load() if source is None else source
    uniform = F.pmod(F.xxhash64("value"), F.lit(_FRACTION)) / _FRACTION
    rank = F.floor(F.pow(F.lit(float(at.products.keys)), uniform))
    key = F.pmod(rank * _SCATTER, F.lit(at.products.keys)) * STRIDE
    sale, quantity = F.col("value"), F.lit(1)
    return rows.select(key.alias(KEY), sale.alias("sale"), quantity.alias("quantity"))
