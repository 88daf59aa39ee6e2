"""Enrichment beside Flink's lookup join: with the same share of bytes, and of rows in memory."""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.harness.command import Job
from benchmarks.harness.record import Record
from benchmarks.spark.comparison import prepare
from benchmarks.spark.data import KEY, Batches, Products
from benchmarks.spark.engine import Caller
from benchmarks.spark.flink import VERSION, Flink, FlinkSetting, join_by_flink, time_flink
from benchmarks.spark.flink import prepare as prepare_flink
from benchmarks.spark.peers.contest import database
from benchmarks.spark.peers.grid import PeersGrid
from benchmarks.spark.peers.parts import stream_of, timed
from benchmarks.spark.queries import (
    DROPPED,
    DifferentRowsError,
    count_and_hash,
    fingerprint,
    warm,
    warm_up,
)
from benchmarks.spark.systems import Setting
from semistream.algorithms import choose
from semistream.hotset import HostShare
from semistream.hotset.plan import Host
from semistream.hotset.sizes import BESIDE, overhead
from semistream.master import open_master
from semistream.spec import JoinSpec

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
_EVEN = 0.95  # of the room is used: shards get more or fewer rows by chance


def measure_flink(job: Job[PeersGrid], engines: Caller) -> Record:
    """Return rates of both, in turn, left and inner."""
    grid, folder, url = job.grid, job.folder, database(job)
    flink = prepare_flink(folder / "flink", job.say) if url else "no database was given: --url"
    if isinstance(flink, str):
        return {"failed": flink}
    products = Products(min(grid.rows), folder)
    cached, batch_rows = int(grid.share * products.rows), max(grid.batch_rows)
    about = {"rows": products.rows, "cached": cached, "note": _NOTE.format(rows=batch_rows)}
    # Flink's stream is in small files, for each is read by one task.
    small = stream_of(grid, products, 2 * (grid.flink_rows // 40), 60)
    streams = (stream_of(grid, products, batch_rows), small)
    cells = []
    for how in grid.hows:
        at = Setting.of(products, how, grid.share, url)
        _check(grid, engines, flink, at)
        ours = {_PAGES: at, _DATABASE: at, _AS_MANY: replace(at, memory=budget_for(cached, at))}
        rates, hits = _rates(job, engines, flink, ours, streams)
        memory = {name: each.memory for name, each in ours.items()}
        cells.append({"how": how, "rates": rates, "flink_hits": hits, "memory": memory})
    return about | {"version": VERSION, "cells": cells}


def budget_for(cached: int, at: Setting) -> int:
    """Return the bytes with which a cache of the database's rows is planned to have so many."""
    master = open_master(at.store.url, table=at.store.table, key=KEY)
    spec = JoinSpec.resolve(master, pa.schema([(KEY, pa.int64())]), KEY, at.how, None, "")
    memory = at.memory
    while _rows_held(spec, memory) < cached:
        memory += memory // 8
    return memory


def _rows_held(spec: JoinSpec, memory: int) -> int:
    """Return how many rows tasks hold together; a quarter is for answers that are not in order."""
    shared = HostShare(tempfile.gettempdir(), _TASKS)  # nothing is opened
    host = choose("adaptive", spec, memory * 3 // 4, None, {}, shared)[1].host
    if not isinstance(host, Host):
        return 0
    room = host.sizes.shards * (host.sizes.slot - overhead(len(host.schema)))
    return int(_EVEN * room / (host.row_bytes + BESIDE))


def _check(grid: PeersGrid, engines: Caller, flink: Flink, at: Setting) -> None:
    """Check that Flink gives the rows of Spark's join."""
    batches = stream_of(grid, at.products, min(grid.batch_rows), 1)
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
    """Return the count of rows in Parquet files, and the sum of their hashes."""
    return count_and_hash(SparkSession.active().read.parquet(folder))


def _rates(
    job: Job[PeersGrid],
    engines: Caller,
    flink: Flink,
    ours: dict[str, Setting],
    streams: tuple[Batches, Batches],
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the rates of every round, in which each had its turn, and Flink's cache hits."""
    grid, (batches, small) = job.grid, streams
    rates: dict[str, list[float]] = {name: [] for name in ("flink", *ours)}
    hits, at = [], ours[_PAGES]
    for name, each in ours.items():
        engines.call("main", prepare, _SYSTEMS[name], each)
        engines.call("main", warm_up, _SYSTEMS[name], each, batches, grid.warm)
    for _ in range(grid.rounds):
        job.say(f"Flink, {at.how}")
        run = time_flink(flink, _flink_setting(grid, at), small.paths, warm=grid.flink_rows)
        rates["flink"].append(run.rows / run.seconds)
        hits.append(round(run.hits, 3))
        for name, each in ours.items():
            job.say(f"beside Flink: {name}, {at.how}")
            took = timed(grid, engines, _SYSTEMS[name], each, batches)
            middle = statistics.median(warm(took, DROPPED))
            rates[name].append(1000 * max(grid.batch_rows) / middle)
    return rates, hits


def _flink_setting(grid: PeersGrid, at: Setting) -> FlinkSetting:
    columns, cached = at.products.schema.remove(0), int(grid.share * at.products.rows)
    return FlinkSetting(at.store, columns, cached, at.how)  # type: ignore[arg-type]  # of two
