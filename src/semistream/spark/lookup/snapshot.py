"""Which snapshot of a master a task reads: that of its micro-batch, whoever pinned it.

A streaming DataFrame is pinned by its tasks, batch by batch; by the driver, where Java reads. For
any other the driver chooses before it runs: the pin of the micro-batch in which it was made
(``foreachBatch``), or else the current snapshot, which is held for a day from its last use or until
the context ends. So is a snapshot that was chosen for a stream, by the driver too while the stream
is idle.
"""

from __future__ import annotations

import errno
import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from pyspark import TaskContext

from semistream.errors import SemistreamError
from semistream.master import list_snapshots
from semistream.master.place import without_secrets
from semistream.master.snapshots import pins
from semistream.spark.cluster.context_state import state_of
from semistream.spark.cluster.executors import context_of
from semistream.spark.lookup.process_cache import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from semistream.master.snapshots.pins import Pin
    from semistream.spark.cluster.context_state import ContextState
    from semistream.spark.lookup.job import Job

__all__ = [
    "attempt_of_driver",
    "batch_of_driver",
    "choose_snapshot",
    "may_pin",
    "pin_batch",
    "renew_holds",
    "repin",
    "snapshot_files",
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
_RENEWAL = 3600.0  # seconds: often enough for holds that last a day


def task_property(name: str) -> str:
    """Return what Spark tells a task of the query that it belongs to."""
    context = TaskContext.get()
    return (context.getLocalProperty(name) if context else None) or ""


def pin_batch(path: str, of: tuple[str, str] | None = None) -> Pin | None:
    """Return the pin of a micro-batch, made now if this is the first to ask.

    The micro-batch is this task's, or ``of``: a query and a number. None where there is no
    micro-batch, and where no pin can be made: on an object store, or in a folder that may not be
    written. The log says so, once.
    """
    if of is not None:  # not to be remembered: a driver lives on when someone has removed a pin
        return _try_there(path, lambda folder: pins.pin(folder, *of))
    batch = task_property(_QUERY), task_property(_BATCH)
    if not all(batch):
        return None
    known = PROCESS.pins.get(path)
    if known is None or known[0] != batch:
        pin = pin_batch(path, batch)
        if pin is None:
            return None
        known = PROCESS.pins[path] = batch, pin
    return known[1]


def repin(path: str, of: tuple[str, str], files: str) -> str:
    """Return the files of the snapshot that is pinned for a micro-batch, empty if none can be.

    Where the pin is gone, ``files`` are pinned, if they are still there.
    """
    folder = _local_folder(path)
    if folder is None or files not in {each.manifest.files for each in list_snapshots(folder)}:
        return ""
    pin = _try_there(path, lambda folder: pins.pin(folder, *of, files))
    return pin.files if pin else ""


def snapshot_files(job: Job, of: tuple[str, str] | None = None) -> str:
    """Return the files of the snapshot that a task reads, empty for the current one.

    ``of`` is as for `pin_batch`.
    """
    if not job.files and job.is_versioned:
        pin = pin_batch(job.path, of)
        return pin.files if pin else ""
    if job.holder:
        _try_there(job.path, lambda folder: pins.hold(folder, job.holder, job.files))
    return job.files


def choose_snapshot(spark: SparkSession, job: Job, streaming: bool) -> Job:
    """Return the job with the snapshot that all its tasks read, unless they pin it themselves."""
    if not job.is_versioned or (streaming and not job.files):
        return job
    of = None if job.files else batch_of_driver(spark)
    if of and (pin := pin_batch(job.path, of)):
        return replace(job, files=pin.files)
    state = state_of(spark)
    hold = _try_there(job.path, lambda folder: pins.hold(folder, state.holder, job.files))
    if hold is None:
        return job
    if folder := _local_folder(job.path):
        state.masters.add(folder)
    if streaming:
        state.holds[job.path, hold.files] = time.monotonic()
    return replace(job, files=hold.files, holder=state.holder)


def renew_holds(state: ContextState) -> None:
    """Hold again what streams of a context read: while they are idle, no task of theirs does."""
    now = time.monotonic()
    for (path, files), before in list(state.holds.items()):
        if now - before >= _RENEWAL:
            with suppress(SemistreamError, OSError):  # the master may be gone
                _try_there(path, partial(pins.hold, holder=state.holder, files=files))
            state.holds[path, files] = now


def _local_folder(path: str) -> Path | None:
    """Return the folder of a path, None where it is on another machine."""
    if "://" not in path:
        return Path(path)
    parsed = urlparse(path)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else None


def may_pin(path: str) -> bool:
    """Return whether snapshots can be pinned here."""
    folder = _local_folder(path)
    return folder is not None and pins.can_pin(folder)


def _try_there(path: str, action: Callable[[Path], Pin]) -> Pin | None:
    """Return the pin that an action on a master's folder makes; None where none can be made."""
    folder = _local_folder(path)
    if folder is None:
        warn_unpinned(path, "it is not on a file system of this machine")
        return None
    try:
        return action(folder)
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        warn_unpinned(path, f"{error.strerror}: {error.filename}" if error.filename else str(error))
        return None


def warn_unpinned(path: str, why: str) -> None:
    """Warn, once, that what a micro-batch reads cannot be promised."""
    if (path, why) in PROCESS.warnings:
        return
    PROCESS.warnings.add((path, why))
    log.warning(
        "%s: snapshots cannot be pinned there (%s). While this master is rebuilt, tasks of one "
        "micro-batch may read different snapshots, and a repeated one reads the newest; let "
        "executors write to its folder .pins, or rebuild it only while no query runs.",
        without_secrets(path),
        why,
    )


def batch_of_driver(spark: SparkSession) -> tuple[str, str] | None:
    """Return the query and the micro-batch in whose ``foreachBatch`` this is called."""
    context = context_of(spark)
    if context is None:  # Spark Connect, whose server does not tell
        return None
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return (query, batch) if query and batch else None


def attempt_of_driver(spark: SparkSession) -> tuple[str, str, str] | None:
    """Return the query, the micro-batch, and the run of the query in which this is called."""
    of, context = batch_of_driver(spark), context_of(spark)
    if of is None or context is None:
        return None
    return (*of, context.getLocalProperty(_RUN) or "")
