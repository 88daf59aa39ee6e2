"""What decides where the rows of a micro-batch go: Spark's log of it, and our own.

::

    checkpoint/semistream-batches/<number>
        {"query": …, "offsets": …, "snapshots": [{"master": …, "files": …}, …] or null}

Where rows are split between a sink and other tables, each table skips a batch that it has. A
replay that came to other rows would therefore lose some, or write them twice. Two things could
make it do so: another snapshot of a master (its pin was removed meanwhile), and other offsets
(Spark's own log was lost in a power cut, so that the batch was planned anew). This log tells
both, and a start refuses them by name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.errors import SemistreamError
from semistream.master.place import without_secrets
from semistream.master.snapshots.pins import KEPT
from semistream.pipeline.checkpoint.checkpoint import CheckpointError, parse_note
from semistream.pipeline.checkpoint.write_once import RemoteFiles, files_in
from semistream.spark.lookup.snapshot import repin

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from semistream.pipeline.checkpoint.write_once import WriteOnceFiles

    Snapshots = tuple[str, ...] | None

__all__ = ["BatchLog", "BatchPlan", "MicroBatch", "read_plan"]

FOLDER = "semistream-batches"
_KEYS = frozenset({"query", "offsets", "snapshots"})


class BatchPlan(NamedTuple):
    """A micro-batch as Spark's log has it."""

    millis: int
    """When it was planned, in milliseconds since 1970."""
    offsets: str = ""
    """A digest of its offsets; another one for a batch that was planned anew."""

    @classmethod
    def parse(cls, text: str) -> BatchPlan:
        """Read a file of the log: a version, the batch's metadata, the offsets.

        Examples
        --------
        >>> BatchPlan.parse('v1' + chr(10) + '{"batchTimestampMs":1794825482700}' + chr(10) + '{}')
        BatchPlan(millis=1794825482700, offsets='196fe3edfa937c58')
        """
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(int(json.loads(text.splitlines()[1])["batchTimestampMs"]), digest)


def read_plan(spark: SparkSession, checkpoint: str, number: int) -> BatchPlan:
    """Read when a batch was planned, and with which offsets, from its checkpoint's log."""
    text = RemoteFiles(f"{checkpoint}/offsets", spark).read(str(number))
    if text is None:
        msg = f"Spark's log {checkpoint}/offsets has no batch {number}, though it is at work on it"
        raise SemistreamError(msg)
    return BatchPlan.parse(text)


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: what it writes, it writes under its number, and so once."""

    query: str
    """Spark's id of it."""
    number: int
    millis: int = 0
    """The batch's own time, in milliseconds since 1970."""
    offsets: str = ""
    """A digest of the offsets that it reads."""

    @classmethod
    def of(cls, batch: DataFrame, number: int, plan: BatchPlan) -> MicroBatch:
        """Return the micro-batch in whose ``foreachBatch`` this is called."""
        context = batch.sparkSession.sparkContext
        return cls(context.getLocalProperty("sql.streaming.queryId") or "", number, *plan)


@dataclass(frozen=True)
class BatchLog:
    """The offsets and snapshots of a checkpoint's last batches."""

    spark: SparkSession
    checkpoint: str
    masters: tuple[str, ...]
    """In the order of the enrichments."""

    def begin(self, batch: MicroBatch, pin: Callable[[], Snapshots]) -> Snapshots:
        """Return the snapshots that a batch reads in every attempt; None if it must be stored.

        ``pin`` pins the snapshots of the masters now; it returns None where a master has none.

        Raises
        ------
        CheckpointError
            An earlier attempt was begun with other offsets or snapshots.
        """
        files, name, now = self._files(), str(batch.number), pin()
        text = files.read(name) or files.write_first(name, self._text(batch, now))
        entry = parse_note(text, self._path(name), _KEYS)
        if entry["offsets"] != batch.offsets:
            raise self._refusal(
                name,
                "was begun with other offsets than Spark's log has now: that log was lost, as in "
                "a power cut, and the batch was planned anew",
            )
        files.remove(str(batch.number - KEPT))
        before = _snapshots(entry)
        if before not in {None, now}:
            raise self._other_snapshots(name, before or (), now)
        return before

    def restore_pins(self) -> None:
        """Pin the snapshots of an unfinished batch again, if its pins are gone.

        Raises
        ------
        CheckpointError
            The snapshots are gone, too, or others are pinned.
        """
        files = self._files()
        numbers = [int(name) for name in files.names() if name.isdecimal()]
        name = str(max(numbers, default=-1))
        if not numbers or name in files_in(f"{self.checkpoint}/commits", self.spark).names():
            return
        entry = parse_note(files.read(name) or "", self._path(name), _KEYS)
        before, of = _snapshots(entry), (entry["query"], name)
        if before is None:
            return
        pairs = zip(self.masters, before, strict=True)
        now = tuple(repin(master, of, snapshot) for master, snapshot in pairs)
        if before != now:
            raise self._other_snapshots(name, before, now)

    def _files(self) -> WriteOnceFiles:
        return files_in(f"{self.checkpoint}/{FOLDER}", self.spark)

    def _path(self, name: str) -> str:
        return f"{self.checkpoint}/{FOLDER}/{name}"

    def _text(self, batch: MicroBatch, snapshots: Snapshots) -> str:
        pairs = zip(map(without_secrets, self.masters), snapshots or (), strict=False)
        listed = [{"master": master, "files": files} for master, files in pairs]
        entry = {"query": batch.query, "offsets": batch.offsets}
        return json.dumps(entry | {"snapshots": None if snapshots is None else listed})

    def _other_snapshots(self, name: str, before: tuple[str, ...], now: Snapshots) -> Exception:
        pairs = zip(self.masters, before, now or ("",) * len(before), strict=False)
        master, was, is_ = next(pair for pair in pairs if pair[1] != pair[2])
        what = (
            f"now snapshot {is_} is pinned" if is_ else "that snapshot is gone or cannot be pinned"
        )
        return self._refusal(
            name,
            f"was begun with snapshot {was} of the master {without_secrets(master)}, and {what}: "
            "its pin was given up, as after 7 days or by semistream master clean, or is not there",
        )

    def _refusal(self, name: str, why: str) -> CheckpointError:
        note = without_secrets(self._path(name))
        return CheckpointError(
            f"micro-batch {name} of the checkpoint {without_secrets(self.checkpoint)} {why}. Some "
            "of its rows may be written already; repeated now, a row might end up in neither the "
            "sink nor the quarantine, or in both. Bring the lost files back from a backup. Or, if "
            "the sink has no rows of this batch, or you have settled them by hand, remove "
            f"{note} and start again: the batch is then repeated as things are now."
        )


def _snapshots(entry: dict[str, Any]) -> Snapshots:
    listed = entry["snapshots"]
    return None if listed is None else tuple(each["files"] for each in listed)
