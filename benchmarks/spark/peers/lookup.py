"""Enrichment beside Flink's lookup join: with the same share of bytes, and of rows in memory."""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.rounds import warm
from benchmarks.spark.data import KEY, Products, Sales
from benchmarks.spark.flink.run import FlinkSetting, join_by_flink, time_flink
from benchmarks.spark.flink.setup import VERSION, Flink
from benchmarks.spark.flink.setup import prepare as prepare_flink
from benchmarks.spark.grid import DROPPED
from benchmarks.spark.peers.contest import DifferentRowsError, prepare
from benchmarks.spark.queries import (
    Batches,
    Enough,
    count_and_hash,
    fingerprint,
    time_batches,
    warm_up,
)
from benchmarks.spark.systems import Setting
from semistream.algorithms import choose
from semistream.hotset import HostShare
from semistream.hotset.plan import Host
from semistream.hotset.sizes import BESIDE
from semistream.master import open_master
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.peers.grid import PeersGrid

__all__ = ["budget_for", "measure_flink"]

_PAGES, _DATABASE, _AS_MANY = "enrich", "enrich-database", "enrich-database-rows"
_SYSTEMS = {_PAGES: _PAGES, _DATABASE: _DATABASE, _AS_MANY: _DATABASE}
_NOTE = (
    "Flink asks PostgreSQL a key at a time, from two tasks with one cache; its start, its warm-up "
    "and its end are not counted. enrich is timed from trigger to commit, in batches of {rows:,}; "
    "it has that share of R's bytes for everything, with which its cache of the database holds "
    "fewer rows than Flink's, and then as many bytes as it takes to hold as many. The server "
    "shares the two cores"
)
_TASKS = 2


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
    small = _small(grid, products, folder)
    found = []
    for how in grid.hows:
        at = Setting.of(products, how, grid.share, url)
        _check(grid, engines, flink, at)
        ours = {_PAGES: at, _DATABASE: at, _AS_MANY: replace(at, memory=budget_for(cached, at))}
        rates, hits = _rates(grid, engines, flink, ours, (batches, small), say)
        memory = {name: each.memory for name, each in ours.items()}
        found.append({"how": how, "rates": rates, "flink_hits": hits, "memory": memory})
    return about | {"version": VERSION, "cells": found}


def budget_for(cached: int, at: Setting) -> int:
    """Give the bytes with which a cache of the database's rows is planned to have so many."""
    master = open_master(at.store.url, table=at.store.table, key=KEY)
    spec = JoinSpec.resolve(master, pa.schema([(KEY, pa.int64())]), KEY, at.how, None, "")
    memory = at.memory
    while _rows_held(spec, memory) < cached:
        memory += memory // 8
    return memory


def _rows_held(spec: JoinSpec, memory: int) -> int:
    """Give how many rows tasks hold together; a quarter is for answers that are not in order."""
    shared = HostShare(tempfile.gettempdir(), _TASKS)  # nothing is opened
    host = choose("adaptive", spec, memory * 3 // 4, None, {}, shared)[1].host
    return 0 if not isinstance(host, Host) else int(host.sizes.slot / (host.row_bytes + BESIDE))


def _check(grid: PeersGrid, engines: Caller, flink: Flink, at: Setting) -> None:
    """See that Flink gives the rows of Spark's join."""
    rows = min(grid.batch_rows)
    sales = Sales(at.products.keys, 1.0, rows, 1, absent=grid.absent)
    batches = Batches(sales.prepare(at.products.folder), sales.files, 1)
    engines.call("main", prepare, _DATABASE, at)
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
    ours: dict[str, Setting],
    streams: tuple[Batches, Batches],
    say: Callable[[str], None],
) -> tuple[dict[str, list[float]], list[float]]:
    """Give the rates of every round, in which each had its turn, and what Flink had cached."""
    found: dict[str, list[float]] = {}
    hits, at = [], ours[_PAGES]
    for name, each in ours.items():
        engines.call("main", prepare, _SYSTEMS[name], each)
        engines.call("main", warm_up, _SYSTEMS[name], each, streams[0], grid.warm)
    for _ in range(grid.rounds):
        say(f"Flink, {at.how}")
        run = time_flink(flink, _flink_setting(grid, at), streams[1].paths, warm=grid.flink_rows)
        found.setdefault("flink", []).append(run.rows / run.seconds)
        hits.append(round(run.hits, 3))
        for name, each in ours.items():
            say(f"beside Flink: {name}, {at.how}")
            rate = _ours(grid, engines, _SYSTEMS[name], each, streams[0])
            found.setdefault(name, []).append(rate)
    return found, hits


def _flink_setting(grid: PeersGrid, at: Setting) -> FlinkSetting:
    columns, cached = at.products.schema.remove(0), int(grid.share * at.products.rows)
    return FlinkSetting(at.store, columns, cached, at.how)  # type: ignore[arg-type]  # of two


def _ours(grid: PeersGrid, engines: Caller, name: str, at: Setting, batches: Batches) -> float:
    enough = Enough(DROPPED, grid.seconds, least=2)
    took: list[int] = engines.call("main", time_batches, name, at, batches, grid.limit, enough)
    rows = max(grid.batch_rows)
    return 1000 * rows / statistics.median(warm(took, DROPPED))
