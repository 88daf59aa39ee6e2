"""Enrichment beside what a user would take instead: all parts, into one record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.harness.command import Benchmark, Job
from benchmarks.harness.record import Record
from benchmarks.spark.database import JARS
from benchmarks.spark.engine import EngineError, Engines
from benchmarks.spark.flink import FlinkError
from benchmarks.spark.peers.contest import Contest
from benchmarks.spark.peers.figures import FIGURES
from benchmarks.spark.peers.grid import ALL, PeersGrid
from benchmarks.spark.peers.lookup import measure_flink
from benchmarks.spark.peers.parts import (
    measure_cores,
    measure_growth,
    measure_memory,
    measure_steady,
)
from benchmarks.spark.peers.tables import sheets
from benchmarks.spark.queries import DROPPED, versions
from benchmarks.spark.systems import SYSTEMS
from semistream.errors import OptionError
from semistream.spark.cluster.jars import DELTA_CATALOG, EXTENSIONS, artifacts, folder_for
from semistream.spark.cluster.maven import JarsError, download

_OF_A_RUN = ("date", "source", "load", "cpu")  # what differs where parts are measured one by one


def measure(job: Job[PeersGrid]) -> Iterator[None]:
    """Measure enrichment beside Spark's joins, stores in workers, key lists and Flink.

    All join the same products and sales on two cores, without a sink. The rows of every system are
    compared with those of Spark's join before it is timed, and systems take turns in random order.
    What cannot be installed is named and left out. With --part, --rows or --how, and --resume, the
    rest of the output stays as it is.
    """
    grid, record = job.grid, job.record
    left_out = record.get("left_out", {})
    record["left_out"] = {k: why for k, why in left_out.items() if k not in grid.parts}
    config = _config(grid, record["left_out"])
    alone = {"broadcast": {"spark.driver.memory": grid.broadcast_memory}}
    masters = {"main": "local[2]", "broadcast": "local[2]"}
    with Engines(masters, config, longest=900.0, special=alone) as engines:
        job.say("starting Spark")
        record["machine"] |= engines.call("main", versions)
        record["dropped"] = DROPPED
        record["labels"] = {name: system.label for name, system in SYSTEMS.items()}
        for part in grid.parts:
            if part == "cells":
                yield from _measure_cells(job, engines)
            else:
                yield from _measure_part(job, part, engines, config)


def _config(grid: PeersGrid, left_out: Record) -> dict[str, str]:
    """Return Spark's settings, with the jars that can be had."""
    jars = []
    for name, wanted in {"jdbc": JARS[:1], "delta": artifacts("delta")}.items():
        try:
            jars += [download(jar, folder_for() / name) for jar in wanted]
        except JarsError as error:
            left_out[name] = str(error)
    config = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": grid.driver_memory,
        "spark.driver.maxResultSize": "0",  # else a broadcast fails by a limit, not for memory
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    if "delta" not in left_out:
        config["spark.sql.extensions"] = EXTENSIONS["delta"]
        config["spark.sql.catalog.spark_catalog"] = DELTA_CATALOG
    return config


def _measure_cells(job: Job[PeersGrid], engines: Engines) -> Iterator[None]:
    order = random.Random(job.grid.seed)  # noqa: S311 - an order
    contest = Contest(job, engines, order)
    for cell in job.grid.cells:
        setting = {name: value for name, value in asdict(cell).items() if name != "systems"}
        entry = setting | contest.measure(cell) | {"measured": _run_of(job.record)}
        job.add("cells", entry, *setting)
        yield


def _measure_part(
    job: Job[PeersGrid], part: str, engines: Engines, config: dict[str, str]
) -> Iterator[None]:
    record = job.record
    record.pop(part, None)  # of another run
    record["measured"] = record.get("measured", {}) | {part: _run_of(record)}
    try:
        if part == "flink":
            record[part] = measure_flink(job, engines)
            yield
            return
        entries = {
            "memory": partial(measure_memory, job, config),
            "cores": partial(measure_cores, job, config),
            "growth": partial(measure_growth, job, engines),
            "steady": partial(measure_steady, job, engines),
        }
        for entry in entries[part]():
            job.add(part, entry)
            yield
    except (EngineError, FlinkError) as error:
        record["left_out"][part] = str(error)
        yield


def _run_of(record: Record) -> Record:
    """Tell the run that measured something from others, whose parts may stand beside it."""
    return {what: record["machine"][what] for what in _OF_A_RUN}


def _merge(before: Record, now: Record, path: Path) -> Record:
    """Keep what an earlier record has of other parts: each says by which run it was measured."""
    if tuple(now["grid"]["systems"]) != ALL:
        msg = (
            f"{path} has samples of other systems, taken in turn with those of --system; give "
            "another --output, or leave --system out"
        )
        raise OptionError(msg)
    return before | now


PEERS = Benchmark(
    "peers",
    "milliseconds of micro-batches on Spark, ours beside the alternatives",
    PeersGrid,
    measure,
    sheets,
    FIGURES,
    servers=("PostgreSQL",),
    resume=_merge,
)
