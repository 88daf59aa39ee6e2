"""Probes the executors before a query starts: can they read the master, will it be in memory."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.errors import MasterError, SemistreamError
from semistream.master.place import without_secrets
from semistream.spark.cluster.executors import (
    context_of,
    executor_heap,
    executors,
    heap_growth,
    is_local,
)
from semistream.spark.lookup.database import check_table
from semistream.spark.lookup.snapshot import may_pin, warn_unpinned
from semistream.spark.lookup.worker import open_files
from semistream.system.machine import free_memory, process_above, process_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from semistream.spark.lookup.job import Job

__all__ = ["Hosts", "probe"]

_SCHEMA = "host string, error string, free long, held double, pins boolean, direct boolean"


@dataclass(frozen=True)
class Hosts:
    """What the executors that answered have in common."""

    free: int
    """Bytes that the host with least could still use."""
    held: float
    """The fraction of the master in memory, where it is least."""
    direct: bool = False
    """Whether all can read its pages past the page cache."""


@dataclass(frozen=True)
class _Report:
    """What one task reports, as `_SCHEMA` has it."""

    host: str
    error: str
    free: int
    held: float
    pins: bool
    direct: bool


def probe(spark: SparkSession, job: Job) -> Hosts:
    """Open the master wherever tasks run; raise an error that names a host which cannot read it."""
    here = context_of(spark) is not None and is_local(spark)  # a Connect server may be anywhere
    reports = [_report(job, heap_growth(spark))] if here else _reports(spark, job)
    way_out = (
        "Put it on a path that all executors share, or let hosts keep copies with localize=True."
        if job.database is None
        else "Executors must reach the database, and have the password and the driver."
    )
    for each in reports:
        if each.error:
            msg = f"the executor on {each.host} cannot read the master: {each.error} {way_out}"
            raise MasterError(without_secrets(msg))
    unpinned = sorted({each.host for each in reports if not each.pins})
    if unpinned and not job.files:
        warn_unpinned(job.path, f"no pin can be made on {', '.join(unpinned)}")
    return Hosts(
        min(each.free for each in reports),
        min(each.held for each in reports),
        all(each.direct for each in reports),
    )


def _reports(spark: SparkSession, job: Job) -> list[_Report]:
    """Return the reports of as many tasks as are likely to meet every executor."""
    tasks, heap = 2 * executors(spark) * job.tasks, executor_heap(spark)

    def report(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):  # all of them, or Spark ends the worker
            growth = max(0, heap - process_memory(process_above("java")))
            yield pa.RecordBatch.from_pylist([asdict(_report(job, growth))])

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(report, _SCHEMA).collect()
    return [_Report(**row.asDict()) for row in rows]


def _report(job: Job, growth: int) -> _Report:
    """Return what this host has; ``growth`` are bytes that the JVM may yet take."""
    error, held, direct = "", 0.0, False
    try:
        if job.database is None:
            held = open_files(job).reader().held()
            with suppress(MasterError):  # a file system without direct reads
                open_files(replace(job, read="direct"))
                direct = True
        else:
            check_table(job.database)
    except (SemistreamError, OSError) as failure:
        error = f"{failure}."
    pins = not job.is_versioned or may_pin(job.path)
    free = max(0, free_memory() - growth)
    return _Report(socket.gethostname(), error, free, held, pins, direct)
