"""Rows a second of an enrichment from a live database, and of the ways that are usual."""

from __future__ import annotations

import os
import random
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.spark.data import KEY, Products, Sales
from benchmarks.spark.engine import Engines
from benchmarks.spark.live.store import JARS, store_of
from benchmarks.spark.live.systems import (
    BOUND,
    ENRICH,
    JDBC,
    LIVE,
    ROWS,
    LiveSetting,
)
from benchmarks.spark.peers.contest import DifferentRowsError
from benchmarks.spark.queries import SCHEMA, Batches, count_and_hash, milliseconds, versions
from semistream.spark.cluster.jars import folder_for
from semistream.spark.cluster.maven import download
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.live.store import Store

__all__ = ["LiveGrid", "engines_for_live", "measure_live"]

_CHECKED_ABSENT = 0.1


@dataclass(frozen=True)
class LiveGrid:
    """What is measured."""

    rows: int = 2_000_000
    batch_rows: tuple[int, ...] = (100_000, 500_000)
    shares: tuple[float, ...] = (0.05, 0.275)
    """Budgets, as shares of the table's bytes; with the second the cache itself has about 5 %."""
    exponent: float = 1.0
    rounds: int = 3
    """In each every system has its turn, in an order that is drawn, so that noise hits all."""
    batches: int = 6
    """Of a round, `dropped` of which are not counted."""
    dropped: int = 2
    row_batches: int = 3
    """Of a round of the row-by-row way, which is slow; of no more rows than ``row_rows``."""
    row_rows: int = 50_000
    chunks: tuple[int, ...] = (5_000, 50_000)
    """Lengths of a JDBC key list; the better one, by a trial, is taken."""
    seed: int = 0

    def quick(self) -> LiveGrid:
        """Give a small version, to try it: its figures mean little."""
        return replace(
            self, rows=100_000, batch_rows=(20_000,), rounds=2, batches=4, chunks=(5000,)
        )


def engines_for_live() -> Engines:
    """Give the process in which Spark runs, with the drivers that the JDBC way needs."""
    jars = [download(jar, folder_for() / "jdbc") for jar in JARS]
    config = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    return Engines({"main": "local[2]"}, config)


def measure_live(
    grid: LiveGrid,
    urls: Sequence[str],
    folder: Path,
    engines: Caller,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Give the record after every cell, each time with more in it."""
    say("starting Spark")
    record: dict[str, Any] = {
        "kind": "live",
        "what": "milliseconds of micro-batches on Spark, enriched from a database",
        "machine": describe() | engines.call("main", versions),
        "grid": asdict(grid),
        "cells": [],
    }
    products = Products(grid.rows, folder)
    for url in urls:
        store = store_of(url, f"semistream_bench_{grid.rows}")
        say(f"{store.kind}: loading {grid.rows:,} rows")
        store.load(products)
        contest = _Contest(grid, store, folder, engines)
        say(f"{store.kind}: the same rows?")
        contest.check()
        for batch_rows, share in product(grid.batch_rows, grid.shares):
            say(f"{store.kind}: batches of {batch_rows:,}, {share:.1%} of R")
            about = {"store": store.kind, "version": store.version(), "rows": grid.rows}
            record["cells"].append(about | contest.measure(batch_rows, share))
            yield record


class _Contest:
    """The systems before one store."""

    def __init__(self, grid: LiveGrid, store: Store, folder: Path, engines: Caller) -> None:
        self._grid, self._folder, self._engines = grid, folder, engines
        self._store = store
        schema = Products(0, folder).batches().schema
        columns = pa.schema([field for field in schema if field.name != KEY])
        self._bytes = Products(grid.rows, folder).bytes
        self._at = LiveSetting(store, columns, self._memory(max(grid.shares)), grid.chunks[0])
        self._order = random.Random(grid.seed)  # noqa: S311 - an order

    def check(self) -> None:
        """See that all systems give the same rows, a part of which has no match."""
        rows = min(2000, *self._grid.batch_rows)
        batches = self._sales(rows, 1, absent=_CHECKED_ABSENT)
        call, joins = self._engines.call, [name for name in LIVE if name != BOUND]
        found = {name: call("main", fingerprint, name, self._at, batches) for name in joins}
        if len({tuple(each) for each in found.values()}) > 1:
            msg = f"the systems give different rows: {found}"
            raise DifferentRowsError(msg)

    def _memory(self, share: float) -> int:
        return int(share * self._bytes)

    def measure(self, batch_rows: int, share: float) -> dict[str, Any]:
        """Run every system in every round."""
        grid, slow = self._grid, min(batch_rows, self._grid.row_rows)
        streams = dict.fromkeys(LIVE, self._sales(batch_rows, grid.batches))
        streams[ROWS] = self._sales(slow, grid.row_batches)
        at = replace(self._at, memory=self._memory(share))
        at = replace(at, chunk=self._best_chunk(streams[JDBC]))
        # The hot rows are in the cache, as they are in a query that has run for a while.
        self._run(ENRICH, at, streams[ENRICH])
        sizes = {name: slow if name == ROWS else batch_rows for name in LIVE}
        systems: dict[str, dict[str, Any]] = {
            name: {"batch_rows": sizes[name], "milliseconds": []} for name in LIVE
        }
        for _ in range(grid.rounds):
            for name in self._order.sample(list(LIVE), len(LIVE)):
                systems[name]["milliseconds"].append(self._run(name, at, streams[name]))
        for name, system in systems.items():
            asked, rows = self._count(name, at, streams[name]), sizes[name] * streams[name].count
            system["queries_a_million"] = round(1e6 * asked / rows)
        about = {"batch_rows": batch_rows, "memory": at.memory, "chunk": at.chunk}
        return about | {"systems": systems}

    def _run(self, name: str, at: LiveSetting, batches: Batches) -> list[int]:
        took: list[int] = self._engines.call("main", time_live, name, at, batches)
        return took

    def _count(self, name: str, at: LiveSetting, batches: Batches) -> int:
        """Give how many queries a run takes."""
        time.sleep(self._store.late)
        before = self._store.queries()
        self._run(name, at, batches)
        time.sleep(self._store.late)
        return self._store.queries() - before

    def _best_chunk(self, batches: Batches) -> int:
        trial = replace(batches, count=self._grid.dropped + 1)
        took = {
            chunk: self._run(JDBC, replace(self._at, chunk=chunk), trial)[-1]
            for chunk in self._grid.chunks
        }
        return min(took, key=lambda chunk: took[chunk])

    def _sales(self, batch_rows: int, count: int, absent: float = 0.0) -> Batches:
        grid = self._grid
        sales = Sales(grid.rows, grid.exponent, batch_rows, count, absent=absent)
        return Batches(sales.prepare(self._folder), sales.files, count)


def time_live(name: str, at: LiveSetting, batches: Batches) -> list[int]:
    """Give the milliseconds that each micro-batch takes, from trigger to commit."""
    spark = SparkSession.active()
    with tempfile.TemporaryDirectory(dir=batches.folder.parent) as scratch:
        source, checkpoint = Path(scratch) / "files", Path(scratch) / "checkpoint"
        source.mkdir()
        for path in batches.paths:
            os.link(path, source / path.name)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", batches.files)
        writer = LIVE[name].stream(reader.parquet(str(source)), at)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return milliseconds(query)


def fingerprint(name: str, at: LiveSetting, batches: Batches) -> list[int]:
    """Give the count of a system's rows, and the sum of their hashes."""
    rows = SparkSession.active().read.schema(SCHEMA).parquet(*map(str, batches.paths))
    return count_and_hash(LIVE[name].rows(rows, at))
