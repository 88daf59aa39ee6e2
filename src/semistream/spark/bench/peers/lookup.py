"""Enrichment beside Flink's lookup join, both with the same share of the rows in memory."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from semistream.bench.rounds import warm
from semistream.spark.bench.data import Products, Sales
from semistream.spark.bench.flink.run import FlinkSetting, join_by_flink, time_flink
from semistream.spark.bench.flink.setup import VERSION, Flink
from semistream.spark.bench.flink.setup import prepare as prepare_flink
from semistream.spark.bench.grid import DROPPED
from semistream.spark.bench.peers.contest import DifferentRowsError, prepare
from semistream.spark.bench.queries import (
    Batches,
    Enough,
    count_and_hash,
    fingerprint,
    time_batches,
)
from semistream.spark.bench.systems import Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.spark.bench.engine import Caller
    from semistream.spark.bench.peers.grid import PeersGrid

__all__ = ["measure_flink"]

_OURS = ("enrich", "enrich-database")
_NOTE = (
    "Flink asks PostgreSQL a key at a time, from two tasks with one cache; its start, its warm-up "
    "and its end are not counted. enrich is timed from trigger to commit, in batches of {rows:,}; "
    "it has that share of R's bytes for everything, so that from PostgreSQL its cache holds fewer "
    "rows than Flink's. The server shares the two cores"
)


def measure_flink(
    grid: PeersGrid, folder: Path, engines: Caller, url: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Give rates of both, in turn, left and inner."""
    flink = prepare_flink(folder / "flink", say) if url else "no database was given: --url"
    if isinstance(flink, str):
        return {"failed": flink}
    products = Products(min(grid.rows), folder)
    cached, batch_rows = int(grid.share * products.rows), max(grid.batch_rows)
    sales = Sales(products.keys, 1.0, batch_rows, grid.batches_of(batch_rows), absent=grid.absent)
    batches = Batches(sales.prepare(folder), sales.files, sales.batches)
    about = {"rows": products.rows, "cached": cached, "note": _NOTE.format(rows=batch_rows)}
    at = {how: Setting.of(products, how, grid.share, url) for how in grid.hows}
    small = _small(grid, products, folder)
    found = []
    for how in grid.hows:
        _check(grid, engines, flink, at[how])
        rates, hits = _rates(grid, engines, flink, at[how], (batches, small), say)
        found.append({"how": how, "rates": rates, "flink_hits": hits})
    return about | {"version": VERSION, "cells": found}


def _check(grid: PeersGrid, engines: Caller, flink: Flink, at: Setting) -> None:
    """See that Flink gives the rows of Spark's join."""
    rows = min(grid.batch_rows)
    sales = Sales(at.products.keys, 1.0, rows, 1, absent=grid.absent)
    batches = Batches(sales.prepare(at.products.folder), sales.files, 1)
    engines.call("main", prepare, "enrich-database", at)
    with tempfile.TemporaryDirectory(dir=at.products.folder) as scratch:
        target = join_by_flink(
            flink, _flink_setting(grid, at), batches.paths, Path(scratch) / "joined"
        )
        theirs = engines.call("main", fingerprint_of_files, str(target))
    right = engines.call("main", fingerprint, "default", at, batches)
    if theirs != right:
        raise DifferentRowsError(f"Flink and default give different rows: {theirs}, {right}, {at}")


def fingerprint_of_files(folder: str) -> list[int]:
    """Give the count of rows in Parquet files, and the sum of their hashes."""
    return count_and_hash(SparkSession.active().read.parquet(folder))


def _small(grid: PeersGrid, products: Products, folder: Path) -> Batches:
    """Give the stream of Flink, in files that are small, for each is read by one task."""
    rows = grid.flink_rows // 40
    sales = Sales(products.keys, 1.0, 2 * rows, 60, absent=grid.absent)
    return Batches(sales.prepare(folder), sales.files, sales.batches)


def _rates(
    grid: PeersGrid,
    engines: Caller,
    flink: Flink,
    at: Setting,
    streams: tuple[Batches, Batches],
    say: Callable[[str], None],
) -> tuple[dict[str, list[float]], list[float]]:
    """Give the rates of every round, in which each had its turn, and what Flink had cached."""
    found: dict[str, list[float]] = {}
    hits = []
    for name in _OURS:
        engines.call("main", prepare, name, at)
    for _ in range(grid.rounds):
        say(f"Flink, {at.how}")
        run = time_flink(flink, _flink_setting(grid, at), streams[1].paths, warm=grid.flink_rows)
        found.setdefault("flink", []).append(run.rows / run.seconds)
        hits.append(round(run.hits, 3))
        for name in _OURS:
            say(f"beside Flink: {name}, {at.how}")
            found.setdefault(name, []).append(_ours(grid, engines, name, at, streams[0]))
    return found, hits


def _flink_setting(grid: PeersGrid, at: Setting) -> FlinkSetting:
    columns, cached = at.products.schema.remove(0), int(grid.share * at.products.rows)
    return FlinkSetting(at.store, columns, cached, at.how)  # type: ignore[arg-type]  # of two


def _ours(grid: PeersGrid, engines: Caller, name: str, at: Setting, batches: Batches) -> float:
    enough = Enough(DROPPED, grid.seconds, least=2)
    took: list[int] = engines.call("main", time_batches, name, at, batches, grid.limit, enough)
    rows = max(grid.batch_rows)
    return 1000 * rows / statistics.median(warm(took, DROPPED))
