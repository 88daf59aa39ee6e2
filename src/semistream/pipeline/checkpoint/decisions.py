"""What decides where the rows of a micro-batch go, noted before any of them is written.

::

    checkpoint/semistream-batches/<number>
        {"query": …, "offsets": …, "snapshots": [{"master": …, "files": …}, …] or null}

Where rows are parted between a sink and other tables, each table skips a batch that it has. A
replay that came to other rows would therefore lose some, or write them twice. Two things could
make it do so: another snapshot of a master (its pin was removed meanwhile), and other offsets
(Spark's own log was lost in a power cut, so that the batch was planned anew). Both are told by
this note, and refused by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.master.place import without_secrets
from semistream.master.snapshots.pins import KEPT
from semistream.pipeline.checkpoint.checkpoint import CheckpointError, parse_note
from semistream.pipeline.checkpoint.notes import notes_in
from semistream.spark.lookup.snapshot import repinned

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from semistream.pipeline.checkpoint.micro_batch import Once
    from semistream.pipeline.checkpoint.notes import Notes

    Snapshots = tuple[str, ...] | None

__all__ = ["Decisions"]

FOLDER = "semistream-batches"
_KEYS = frozenset({"query", "offsets", "snapshots"})


@dataclass(frozen=True)
class Decisions:
    """The notes of a checkpoint: what each of its last batches was decided with."""

    spark: SparkSession
    checkpoint: str
    masters: tuple[str, ...]
    """In the order of the enrichments."""

    def decide(self, once: Once, pin: Callable[[], Snapshots]) -> Snapshots:
        """Return the snapshots that a batch reads in every attempt; None if it has to be held.

        Parameters
        ----------
        once
            The batch.
        pin
            Pins the snapshots of the masters now; None where one of them has no snapshots.

        Raises
        ------
        CheckpointError
            An earlier attempt was decided otherwise.
        """
        notes, name, now = self._notes(), str(once.number), pin()
        text = notes.read(name) or notes.write_first(name, self._text(once, now))
        note = parse_note(text, self._path(name), _KEYS)
        if note["offsets"] != once.offsets:
            raise self._refusal(
                name,
                "was begun with other offsets than Spark's log has now: that log was lost, as in "
                "a power cut, and the batch was planned anew",
            )
        notes.remove(str(once.number - KEPT))
        if note["snapshots"] is None:
            return None
        before = _files(note)
        if before != now:
            raise self._other_snapshots(name, before, now)
        return now

    def restore_pins(self) -> None:
        """Pin the snapshots of an unfinished batch again, if its pins are gone.

        Raises
        ------
        CheckpointError
            The snapshots are gone, too, or others are pinned.
        """
        notes = self._notes()
        numbers = [int(name) for name in notes.names() if name.isdecimal()]
        if not numbers:
            return
        name = str(max(numbers))
        if name in notes_in(f"{self.checkpoint}/commits", self.spark).names():
            return
        note = parse_note(notes.read(name) or "", self._path(name), _KEYS)
        if note["snapshots"] is None:
            return
        before, of = _files(note), (note["query"], name)
        pairs = zip(self.masters, before, strict=True)
        now = tuple(repinned(master, of, files) for master, files in pairs)
        if before != now:
            raise self._other_snapshots(name, before, now)

    def _notes(self) -> Notes:
        return notes_in(f"{self.checkpoint}/{FOLDER}", self.spark)

    def _path(self, name: str) -> str:
        return f"{self.checkpoint}/{FOLDER}/{name}"

    def _text(self, once: Once, snapshots: Snapshots) -> str:
        pairs = zip(map(without_secrets, self.masters), snapshots or (), strict=False)
        listed = [{"master": master, "files": files} for master, files in pairs]
        held = snapshots is None
        note = {"query": once.query, "offsets": once.offsets, "snapshots": None if held else listed}
        return json.dumps(note)

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


def _files(note: dict[str, list[dict[str, str]]]) -> tuple[str, ...]:
    return tuple(each["files"] for each in note["snapshots"])
