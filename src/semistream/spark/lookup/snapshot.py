"""Which snapshot of a master a task reads: that of its micro-batch, whoever pinned it.

A streaming DataFrame is pinned by its tasks, batch by batch; by the driver, where Java reads. Any
other is settled by the driver before it runs: on the pin of the micro-batch in which it was made
(``foreachBatch``), or else on the current snapshot, which is held for a day from its last use or
until the driver ends. So is a snapshot that was chosen for a stream, by the driver too while the
stream has nothing to do.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from pyspark import TaskContext

from semistream.errors import SemistreamError
from semistream.master import list_snapshots
from semistream.master.place import without_secrets
from semistream.master.snapshots import pins
from semistream.spark.cluster.executors import context_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from semistream.master.snapshots.pins import Pin
    from semistream.spark.lookup.job import Job

__all__ = [
    "attempt_of_driver",
    "batch_of_driver",
    "batch_of_task",
    "may_pin",
    "pinned",
    "renew_holds",
    "repinned",
    "settled",
    "snapshot_of",
    "task_property",
    "warn_unpinned",
]

log = logging.getLogger(__name__)

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"  # that of a query is the id of its run
_FORBIDDEN = {
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK),  # a file system without hard links or locks
}
_AGAIN = 3600.0  # seconds; what is held is held for a day
_renewed: dict[tuple[str, str], float] = {}
_last: dict[str, tuple[tuple[str, str], Pin]] = {}


def task_property(name: str) -> str:
    """Give what Spark tells a task of the query that it belongs to."""
    context = TaskContext.get()
    return (context.getLocalProperty(name) if context else None) or ""


def batch_of_task() -> tuple[str, str] | None:
    """Give the query and the micro-batch of this task, None where there are no such."""
    query, batch = task_property(_QUERY), task_property(_BATCH)
    return (query, batch) if query and batch else None


def pinned(path: str, of: tuple[str, str] | None = None) -> Pin | None:
    """Give the pin of this task's micro-batch, made now if this is the first to ask.

    None where there is no micro-batch, and where no pin can be made: on an object store, or in a
    folder that may not be written. The log says so, once.

    Parameters
    ----------
    path
        The master's folder; a copy has no pins of its own.
    of
        The query and the micro-batch, if they are not this task's.
    """
    if of is not None:  # not to be remembered: a driver lives on when someone has removed a pin
        query, number = of
        return _allowed(path, lambda folder: pins.pin(folder, query, number))
    batch = batch_of_task()
    if batch is None:
        return None
    known = _last.get(path)
    if known is None or known[0] != batch:
        found = pinned(path, batch)
        if found is None:
            return None
        known = _last[path] = batch, found
    return known[1]


def repinned(path: str, of: tuple[str, str], files: str) -> str:
    """Return the files of the snapshot that is pinned for a micro-batch, empty if none can be.

    Where the pin is gone, ``files`` are pinned, if they are still there.
    """
    folder = _folder_of(path)
    if folder is None:
        return ""
    there = any(snapshot.manifest.files == files for snapshot in list_snapshots(folder))
    pin = _allowed(path, lambda folder: pins.pin(folder, *of, files)) if there else None
    return pin.files if pin else ""


def snapshot_of(job: Job, of: tuple[str, str] | None = None) -> str:
    """Give the files of the snapshot that a task reads, empty for the current one.

    ``of`` is as for `pinned`.
    """
    if not job.files and job.is_versioned:
        pin = pinned(job.path, of)
        return pin.files if pin else ""
    if job.holder:
        _allowed(job.path, lambda folder: pins.hold(folder, job.holder, job.files))
    return job.files


def settled(spark: SparkSession, job: Job, streaming: bool) -> Job:
    """Give the job with the snapshot that all of its tasks read, unless they pin it themselves."""
    if not job.is_versioned or (streaming and not job.files):
        return job
    of = None if job.files else batch_of_driver(spark)
    if of and (pin := pinned(job.path, of)):
        return replace(job, files=pin.files)
    held = _allowed(job.path, lambda folder: pins.hold(folder, _holder(), job.files))
    if held is None:
        return job
    _release_at_end(job.path)
    if streaming:
        _renewed[job.path, held.files] = time.monotonic()
    return replace(job, files=held.files, holder=_holder())


def renew_holds() -> None:
    """Hold again what streams of this driver read: while nothing comes, no task of theirs does."""
    now = time.monotonic()
    for (path, files), before in list(_renewed.items()):
        if now - before >= _AGAIN:
            with suppress(SemistreamError, OSError):  # the master may be gone
                _allowed(path, partial(pins.hold, holder=_holder(), files=files))
            _renewed[path, files] = now


def _folder_of(path: str) -> Path | None:
    """Give the folder of a path, None where it is on another machine."""
    if "://" not in path:
        return Path(path)
    parsed = urlparse(path)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else None


def may_pin(path: str) -> bool:
    """Tell whether snapshots can be pinned here."""
    folder = _folder_of(path)
    return folder is not None and pins.can_pin(folder)


def _allowed(path: str, do: Callable[[Path], Pin]) -> Pin | None:
    """Do it, unless it is not possible there."""
    folder = _folder_of(path)
    if folder is None:
        warn_unpinned(path, "it is not on a file system of this machine")
        return None
    try:
        return do(folder)
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        warn_unpinned(path, f"{error.strerror}: {error.filename}" if error.filename else str(error))
        return None


@cache
def warn_unpinned(path: str, why: str) -> None:
    """Say, once, that what a micro-batch reads cannot be promised."""
    log.warning(
        "%s: snapshots cannot be pinned there (%s). While this master is built anew, tasks of one "
        "micro-batch may read different snapshots, and a repeated one reads the newest; let "
        "executors write to its folder .pins, or build it anew only while no query runs.",
        without_secrets(path),
        why,
    )


def batch_of_driver(spark: SparkSession) -> tuple[str, str] | None:
    """Give the query and the micro-batch in whose ``foreachBatch`` this is called."""
    context = context_of(spark)
    if context is None:  # Spark Connect, whose server does not tell
        return None
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return (query, batch) if query and batch else None


def attempt_of_driver(spark: SparkSession) -> tuple[str, str, str] | None:
    """Give the query, the micro-batch, and the run of the query in which this is called."""
    of, context = batch_of_driver(spark), context_of(spark)
    if of is None or context is None:
        return None
    return (*of, context.getLocalProperty(_RUN) or "")


@cache
def _holder_of(pid: int) -> str:
    return f"{pid}-{uuid.uuid4().hex[:12]}"


def _holder() -> str:
    return _holder_of(os.getpid())


@cache
def _release_at_end(path: str) -> None:
    folder, holder = _folder_of(path), _holder()
    if folder is not None:
        atexit.register(pins.release, folder, holder)
