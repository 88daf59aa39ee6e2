"""What runs in Spark's Python workers.

A task makes its join at its start and closes it at its end, so that nothing waits across tasks,
and a worker that rests holds nothing but open files. What is warm lives on the host.
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
from semistream.spark.lookup.database import in_database
from semistream.spark.lookup.job import shape_of
from semistream.spark.lookup.refusal import Refusal
from semistream.spark.lookup.reports import Report
from semistream.spark.lookup.snapshot import snapshot_of, task_property
from semistream.spark.types import transferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import Accumulator

    from semistream.join import Join
    from semistream.master import FileMaster, Master
    from semistream.spark.lookup.job import Job
    from semistream.spark.lookup.reports import Key

    Channel = Accumulator[dict[Key, Report]] | None

__all__ = ["answer_keys", "checked", "join_rows", "opened", "opened_files"]

log = logging.getLogger(__name__)

_SHAPE = re.compile(rb"[0-9a-f]{16}")  # see `shape_of`
_REMEMBERED: set[tuple[str, str, str]] = set()
_OPENED: dict[tuple[str, str], dict[object, FileMaster]] = {}
_OPEN = 2  # snapshots of a master: a task of the batch before may still be running


def opened(job: Job, of: tuple[str, str] | None = None) -> Master:
    """Give the master as a micro-batch sees it; its shape must be the job's.

    The micro-batch is this task's, or that of a query and a number.
    """
    return opened_files(job, of) if job.database is None else in_database(job.database)


def opened_files(job: Job, of: tuple[str, str] | None = None) -> FileMaster:
    """Return a master of files as a micro-batch sees it."""
    files = snapshot_of(job, of)
    path = local_copy(job.path, job.copies, files) if job.copies else job.path
    known = _OPENED.setdefault((job.path, job.read), {})
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
        found = (Path(path) / MANIFEST).stat()
    except FileNotFoundError:
        return path, 0, 0  # opening says what is missing
    return path, found.st_ino, found.st_mtime_ns


def join_rows(
    job: Job, channel: Channel, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Join whole rows: what ``mapInArrow`` runs."""
    if job.single:
        _check_unique(job, opened(job))
    with _running(job, channel) as (join, note):
        finish = _for_spark(join.schema, len(job.stream))
        refusal = Refusal(job)
        for batch in batches:
            yield from map(finish, refusal.rows(join.offer(_typed(batch, job.stream))))
            note()
        yield from map(finish, refusal.rows(join.drain()))


def answer_keys(
    job: Job, channel: Channel, batches: Iterable[tuple[pa.Array, ...]]
) -> Iterator[pa.Array]:
    """Give for each row a struct of the master's columns, or whether there is a match."""
    _check_unique(job, opened(job))
    with _running(job, channel) as (join, note):
        answers = Answers(join, job.stream, job.room_for_answers // 2, job.shown)
        refusal = Refusal(job)
        for asked in batches:
            keys = refusal.asked(asked)
            yield from refusal.answers(answers.add(keys))
            note()
        yield from refusal.answers(answers.finish())


def checked(job: Job, of: tuple[str, str] | None) -> FileMaster:
    """Give the master as a micro-batch of a query sees it, for one answer a row."""
    master = opened_files(job, of)
    _check_unique(job, master)
    _remember(job, master, of[0] if of else "")
    return master


def _check_unique(job: Job, master: Master) -> None:
    """Refuse a snapshot in which a key has several rows, where one answer a row was planned."""
    if job.how in {"semi", "anti"} or not job.is_versioned:
        return
    most = master.statistics.most_duplicates
    if most > 1:
        why = (
            "in its pipeline a row must stay one row: build the master with one row a key again"
            if job.single
            else "a row was to have one answer; start the query again, with transfer='rows' or "
            "'auto'"
        )
        msg = (
            f"{job.shown}: since the query {job.name!r} was started the master has come to have up "
            f"to {most:,} rows a key, and {why}"
        )
        raise MasterError(msg)


@contextmanager
def _running(job: Job, channel: Channel) -> Iterator[tuple[Join, Callable[[], None]]]:
    """Give a task's join, and a way to note what it holds; report when it ends."""
    keep_archives()
    master = opened(job)
    _remember(job, master, task_property("sql.streaming.queryId"))
    join, most = job.join(master), MemoryUse()

    def note() -> None:
        for name, size in join.memory_used.items():
            most[name] = max(size, most.get(name, 0))

    try:
        yield join, note
        note()
    finally:
        if channel is not None:
            channel.add({_key(job): Report(job.counters(join.metrics), dict(most), job.memory)})
        join.close()


def _remember(job: Job, master: Master, query: str) -> None:
    """Note beside the master which types a query began with; others later are an error.

    A query is the same as long as its checkpoint is, and has a note for each choice of columns. A
    folder that may not be written, or a copy of the master on this host, has none.
    """
    if not query or job.copies or job.database or (query, job.path, job.shape) in _REMEMBERED:
        return
    taken = xxhash.xxh3_64_hexdigest("\0".join([*master.key, *job.select]).encode())
    note = Path(job.path) / f".query-{query}-{taken}"
    with suppress(OSError):
        if _noted(note, job.shape) != job.shape:
            msg = (
                f"{job.path}: this master was rebuilt with other columns or another key since the "
                "query's checkpoint was begun; start with a new checkpoint, or rebuild the master "
                "as it was"
            )
            raise SchemaError(msg)
    _REMEMBERED.add((query, job.path, job.shape))


def _noted(note: Path, shape: str) -> str:
    """Return what a note says; the first who comes writes it, whole or not at all.

    One that says nothing sensible cannot tell whether types have changed, and is written anew.
    """
    if not note.exists():
        _write_note(note, shape, Draft.publish_first)
    if not _SHAPE.fullmatch(note.read_bytes()):
        log.warning("%s is damaged; types that the query takes now are noted in its place", note)
        _write_note(note, shape, Draft.publish)
    return note.read_text()


def _write_note(note: Path, shape: str, publish: Callable[[Draft, str], object]) -> None:
    with Draft(note.parent, shape.encode()) as draft:
        draft.sync()
        publish(draft, note.name)
        sync_folder(note.parent)


def _key(job: Job) -> Key:
    """Name what a report is about: the query and the micro-batch, where there are such."""
    return task_property("sql.streaming.queryId"), task_property("streaming.sql.batchId"), job.name


def _for_spark(schema: pa.Schema, kept: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Bring the master's columns, those after ``kept``, into types that Spark has."""
    targets = [*schema.types[:kept], *(transferred(f) for f in list(schema)[kept:])]
    named = [pa.field(f"c{i}", kind) for i, kind in enumerate(targets)]  # see `transfer.by_rows`
    return lambda batch: _typed(batch, pa.schema(named))


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give columns these names and types; a finer time than Spark has is cut, as Spark cuts it."""
    columns = [cast(c, f.type, safe=False) for c, f in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
