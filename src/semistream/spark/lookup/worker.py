"""What runs in Spark's Python workers.

A task makes its join at its start and closes it at its end, so that nothing waits across tasks,
and an idle worker holds nothing but open files. Warm rows are kept by the host.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from semistream.arrow.types import cast
from semistream.engine.plan import MemoryUse
from semistream.errors import MasterError, SchemaError, SnapshotNotFoundError
from semistream.master import open_master
from semistream.master.files.drafts import Draft, sync_folder
from semistream.master.files.format import MANIFEST
from semistream.spark.cluster.zip_imports import keep_archives
from semistream.spark.lookup.answers import Answers
from semistream.spark.lookup.copies import local_copy
from semistream.spark.lookup.database import shared_master
from semistream.spark.lookup.job import shape_of
from semistream.spark.lookup.process_cache import PROCESS
from semistream.spark.lookup.refusal import Refusal
from semistream.spark.lookup.reports import Report
from semistream.spark.lookup.snapshot import snapshot_files, task_property
from semistream.spark.types import transfer_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import Accumulator

    from semistream.join import Join
    from semistream.master import FileMaster, Master
    from semistream.spark.lookup.job import Job
    from semistream.spark.lookup.reports import Key

    Channel = Accumulator[dict[Key, Report]] | None

__all__ = ["answer_keys", "join_rows", "open_checked", "open_files", "open_job_master"]

log = logging.getLogger(__name__)

_SHAPE = re.compile(rb"[0-9a-f]{16}")  # see `shape_of`
_OPEN = 2  # snapshots of a master: a task of the batch before may still be running


def open_job_master(job: Job, of: tuple[str, str] | None = None) -> Master:
    """Return the master as a micro-batch sees it; its shape must be the job's.

    The micro-batch is this task's, or ``of``: a query and a number.
    """
    return open_files(job, of) if job.database is None else shared_master(job.database)


def open_files(job: Job, of: tuple[str, str] | None = None) -> FileMaster:
    """Return a master of files as a micro-batch sees it."""
    files = snapshot_files(job, of)
    path = local_copy(job.path, job.copies, files) if job.copies else job.path
    known = PROCESS.masters.setdefault((job.path, job.read), {})
    stamp = files or _stamp(path)
    master = known.get(stamp)
    if master is None:
        for old in list(known)[: 1 - _OPEN]:
            known.pop(old, None)  # perhaps another thread has done so
        master = known[stamp] = _open(job, path, files)
    if job.shape and shape_of(master, job.select) != job.shape:
        msg = (
            f"{path}: this master was rebuilt with other columns or another key while the query "
            f"{job.name!r} ran; end the query, and start it anew on the new master"
        )
        raise MasterError(msg)
    return master


def _open(job: Job, path: str, files: str) -> FileMaster:
    try:
        master = open_master(Path(path), job.read, snapshot=files or None)
    except SnapshotNotFoundError as error:
        way = (
            "call enrich again, which takes the current one"
            if job.files
            else f"remove the micro-batch's file in {job.path}/.pins to repeat it on another"
        )
        msg = f"{error} What is to be computed was begun on this snapshot: {way}."
        raise SnapshotNotFoundError(msg) from None
    return replace(master, origin=job.path) if job.copies else master


def _stamp(path: str) -> tuple[str, int, int]:
    try:
        status = (Path(path) / MANIFEST).stat()
    except FileNotFoundError:
        return path, 0, 0  # opening says what is missing
    return path, status.st_ino, status.st_mtime_ns


def join_rows(
    job: Job, channel: Channel, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Join whole rows: what ``mapInArrow`` runs."""
    if job.single:
        _check_unique(job, open_job_master(job))
    with _running(job, channel) as (join, note):
        # Numbers for names, see `transfer.by_rows`; the master's columns in types that Spark has.
        kept, fields = len(job.stream), list(join.schema)
        types = [f.type if i < kept else transfer_type(f) for i, f in enumerate(fields)]
        output = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(types)])
        refusal = Refusal(job)
        for batch in batches:
            for rows in refusal.rows(join.offer(_cast(batch, job.stream))):
                yield _cast(rows, output)
            note()
        for rows in refusal.rows(join.drain()):
            yield _cast(rows, output)


def answer_keys(
    job: Job, channel: Channel, batches: Iterable[tuple[pa.Array, ...]]
) -> Iterator[pa.Array]:
    """Return for each row a struct of the master's columns, or whether there is a match."""
    _check_unique(job, open_job_master(job))
    with _running(job, channel) as (join, note):
        answers = Answers(join, job.stream, job.room_for_answers // 2, job.shown)
        refusal = Refusal(job)
        for columns in batches:
            yield from refusal.answers(answers.add(refusal.take_keys(columns)))
            note()
        yield from refusal.answers(answers.finish())


def open_checked(job: Job, of: tuple[str, str] | None) -> FileMaster:
    """Return the master as a micro-batch of a query sees it, for one answer a row."""
    master = open_files(job, of)
    _check_unique(job, master)
    _check_shape(job, master, of[0] if of else "")
    return master


def _check_unique(job: Job, master: Master) -> None:
    """Refuse a snapshot in which a key has several rows, where one answer a row was planned."""
    most = master.statistics.most_duplicates if job.is_versioned else 1
    if job.how in {"semi", "anti"} or most <= 1:
        return
    way = (
        "in its pipeline a row must stay one row: build the master with one row a key again"
        if job.single
        else "a row was to have one answer; start the query again, with transfer='rows' or 'auto'"
    )
    msg = (
        f"{job.shown}: since the query {job.name!r} was started the master has come to have up "
        f"to {most:,} rows a key, and {way}"
    )
    raise MasterError(msg)


@contextmanager
def _running(job: Job, channel: Channel) -> Iterator[tuple[Join, Callable[[], None]]]:
    """Open a task's join, and a way to note what it holds; report when it ends."""
    keep_archives()
    master, query = open_job_master(job), task_property("sql.streaming.queryId")
    _check_shape(job, master, query)
    join, most = job.join(master), MemoryUse()

    def note() -> None:
        for name, size in join.memory_used.items():
            most[name] = max(size, most.get(name, 0))

    try:
        yield join, note
        note()
    finally:
        if channel is not None:
            key = query, task_property("streaming.sql.batchId"), job.name
            channel.add({key: Report(job.counters(join.metrics), dict(most), job.memory)})
        join.close()


def _check_shape(job: Job, master: Master, query: str) -> None:
    """Note beside the master which types a query began with; refuse others later.

    A query is the same as long as its checkpoint is, and has a note for each choice of columns. A
    folder that may not be written, or a copy of the master on this host, has none.
    """
    known = query, job.path, job.shape
    if not query or job.copies or job.database or known in PROCESS.known_shapes:
        return
    columns = xxhash.xxh3_64_hexdigest("\0".join([*master.key, *job.select]).encode())
    with suppress(OSError):
        if _first_shape(Path(job.path) / f".query-{query}-{columns}", job.shape) != job.shape:
            msg = (
                f"{job.path}: this master was rebuilt with other columns or another key since the "
                "query's checkpoint was begun; start with a new checkpoint, or rebuild the master "
                "as it was"
            )
            raise SchemaError(msg)
    PROCESS.known_shapes.add(known)


def _first_shape(note: Path, shape: str) -> str:
    """Return the shape in a note; the first task writes it, whole or not at all.

    A damaged note cannot tell whether types have changed, and is replaced.
    """
    publish: Callable[[Draft, str], object] | None
    publish = None if note.exists() else Draft.publish_first
    if publish is None and not _SHAPE.fullmatch(note.read_bytes()):
        log.warning("%s is damaged; types that the query takes now are noted in its place", note)
        publish = Draft.publish
    if publish is not None:
        with Draft(note.parent, shape.encode()) as draft:
            draft.sync()
            publish(draft, note.name)
            sync_folder(note.parent)
    return note.read_text()


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return columns in these names and types; finer times than Spark has are cut, as it does."""
    columns = [cast(c, f.type, safe=False) for c, f in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
