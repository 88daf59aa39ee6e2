"""A host's hot set as one join sees it: the newest generation, and a way to make a newer one."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from semistream.hotset.journal import Journal
from semistream.hotset.merge import choose_rows, unchanged_rows, write
from semistream.hotset.sizes import BESIDE, overhead
from semistream.hotset.slot import Slot
from semistream.system.shared_folder import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from semistream.hotset.merge import Chosen
    from semistream.hotset.plan import Host
    from semistream.hotset.slot import Generation

    Flags = npt.NDArray[np.bool_]

__all__ = ["HostState"]

log = logging.getLogger(__name__)

_PERIOD = 10  # counts are halved after this many stream rows for each row that has room
_LEAST_PERIOD = 1024  # rows: a small hot set would forget what it has just counted
_CHANGED_CODE = 32  # bytes of a changed code, while the changes of several syncs are put together


class HostState:
    """The hot set of all joins of one kind on a host: two slots for generations, and a journal."""

    def __init__(self, host: Host) -> None:
        self._root, self._sizes, self._master = host.root, host.sizes, host.master
        self._schema, self._snapshot = host.schema, _number_of(host.master.snapshot)
        folder, self._folder = open_folder(host.root, host.name)
        self._journal = Journal(folder / "common", host.sizes)
        self._slots = [Slot(folder / name) for name in ("a", "b")]
        self._may_have_older = True
        self._now: Generation | None = None
        self._locked = False
        self._row = host.row_bytes + BESIDE
        self._staged_schema = pa.schema([pa.field("", pa.uint32()), *host.schema])
        self.sketch = self._journal.sketch
        self.alive: Callable[[pa.RecordBatch], Flags] | None = None
        """Returns which rows still count, where that is not all; newer ones replace the others."""

    @property
    def memory_used(self) -> dict[str, int]:
        """Bytes of the files, by component of the plan."""
        return {
            "host cache": sum(slot.nbytes for slot in self._slots),
            "host staged": self._sizes.staged,
            "host counters": self._journal.nbytes - self._sizes.staged,
        }

    @property
    def threshold(self) -> float:
        """Hits that a row must have to be staged."""
        return self._journal.threshold

    @property
    def staging(self) -> int:
        """Bytes that are left for staged rows."""
        return self._sizes.staged - self._journal.staged_bytes(self._snapshot)

    def newest(self) -> Generation | None:
        """Return the newest generation; it is not overwritten until `rest` is called."""
        if not self._folder.is_ours:
            return None  # locks are those of the process that this was forked from
        if self._may_inherit:
            with self._journal.alone() as alone:
                if alone:
                    self._inherit()
        return self._newest()

    def _newest(self) -> Generation | None:
        numbers = self._numbers()
        slot = self._slots[numbers.index(max(numbers))]
        if self._now is None or self._now.number != max(numbers):
            self.rest()
            self._now = slot.read(self._schema, self._snapshot) if max(numbers) else None
            self._locked = self._now is not None
        elif not self._locked:
            # The memory is mapped already; whether it has changed is known once it cannot any more.
            self._locked = slot.file.lock()
            if self._locked and slot.number_of(self._snapshot) != self._now.number:
                self.rest()
        return self._now if self._locked else None

    def _numbers(self) -> list[int]:
        return [slot.number_of(self._snapshot) for slot in self._slots]

    @property
    def _may_inherit(self) -> bool:
        if not self._may_have_older or any(self._numbers()):
            return False
        return any(slot.number for slot in self._slots)

    def _inherit(self) -> None:
        """Make a generation of what an earlier snapshot left, without the rows that changed.

        The caller is alone: what is locked here once more would be unlocked for the caller, too.
        """
        if not self._may_inherit:
            return  # someone else was faster
        for snapshot, changed in self._master.changes_since(self._sizes.merge // _CHANGED_CODE):
            number = _number_of(snapshot)
            if slots := [slot for slot in self._slots if slot.number_of(number)]:
                self._may_have_older = not self._carry(max(slots, key=_number), number, changed)
                return
        self._may_have_older = False  # all that is there is someone else's

    def _carry(self, source: Slot, snapshot: int, changed: npt.NDArray[np.int64]) -> bool:
        """Write the unchanged rows of a slot to the other one; return whether that was possible."""
        target = next(slot for slot in self._slots if slot is not source)
        old = source.read(self._schema, snapshot)
        if old is None:
            return False
        try:
            if not target.file.lock(alone=True):
                return False
            try:
                self._finish(target, [old.batch], unchanged_rows(old.batch, old.hits, changed))
            finally:
                target.file.unlock()
        finally:
            old.leave()
        return True

    def _finish(self, slot: Slot, sources: list[pa.RecordBatch], chosen: Chosen) -> bool:
        """Write a generation into a slot, whole or not at all; return whether there was room."""
        place = write(slot, sources, chosen) if len(chosen.block) else None
        if place is None:
            return False
        slot.finish(self._snapshot, max(s.last for s in self._slots) + 1, *place)
        return True

    def rest(self) -> None:
        """Let the generation be overwritten: it is not read before `newest` returns it again."""
        if self._now is not None and self._locked:
            self._now.leave()
        self._locked = False

    def count(self, rows: int) -> None:
        """Count stream rows; halve all counts now and then."""
        self._journal.count(rows)
        room = max(_LEAST_PERIOD, self._sizes.slot / self._row)
        if self._journal.rows > _PERIOD * room:
            with self._journal.alone() as alone:
                if not alone or self._journal.rows <= _PERIOD * room:  # someone else was faster
                    return
                if (now := self._newest()) is not None:
                    np.right_shift(now.hits, 1, out=now.hits)
                    self.rest()
                self._journal.age()

    def stage(self, rows: pa.RecordBatch, hits: npt.NDArray[np.int64]) -> None:
        """Stage rows, whole join values, for the next generation, unless one is being made."""
        with self._journal.alone() as alone:
            if alone:
                columns = [pa.array(hits.astype(np.uint32)), *rows.columns]
                staged = pa.RecordBatch.from_arrays(columns, schema=self._staged_schema)
                self._journal.stage(staged, self._snapshot)

    def publish(self) -> None:
        """Make the next generation if enough is staged, and no one else does; `rest` afterwards."""
        if self._journal.staged_bytes(self._snapshot) < self._enough():
            return
        with self._journal.alone() as alone:
            if alone:
                try:
                    self._publish()
                finally:
                    self.rest()

    def _enough(self) -> int:
        """Return the staged bytes that are worth a new generation, which copies all rows."""
        held = len(self._now) * self._row if self._now else 0.0
        return int(max(self._sizes.staged / 16, min(held / 16, self._sizes.staged / 2)))

    def _publish(self) -> None:
        """Make a new generation of the newest one and the staged rows, if a slot is free."""
        self._inherit()
        now = self._newest()
        free = sorted((s for s in self._slots if not now or s is not now.slot), key=_number)
        for slot in free if self._journal.staged_bytes(self._snapshot) else ():
            if slot.file.lock(alone=True):
                try:
                    self._make(slot, now)
                finally:
                    slot.file.unlock()
                return

    def _make(self, slot: Slot, now: Generation | None) -> None:
        staged = list(self._journal.staged(self._staged_schema, self._snapshot))
        hits = [batch.column(0).to_numpy() for batch in staged]
        sources = [pa.RecordBatch.from_arrays(b.columns[1:], schema=self._schema) for b in staged]
        if now is not None:
            sources, hits = [now.batch, *sources], [now.hits, *hits]
        room = self._sizes.slot - overhead(len(self._schema))
        alive = None
        if now is not None and self.alive is not None:  # rows that count, and were not staged anew
            anew = [source.column(0).to_numpy() for source in sources[1:]]
            alive = self.alive(now.batch) & ~np.isin(now.codes, np.concatenate(anew))
        chosen = choose_rows(sources, hits, room, self._row, alive)
        if self._finish(slot, sources, chosen):
            self._journal.threshold = max(1.0, min(chosen.lost, 254.0))
        elif len(chosen.block):
            _warn_of_no_room(self._root)
        self._journal.clear()  # in any case: else the next process would choose anew, at each chunk

    def close(self) -> None:
        """Release all locks; the files stay."""
        self.rest()
        self._now = None
        self._journal.close()
        for slot in self._slots:
            slot.file.close()
        self._folder.close()


def _number(slot: Slot) -> int:
    return slot.number


def _number_of(snapshot: str) -> int:
    """Return the number by which slots tell snapshots of the master apart."""
    return xxhash.xxh3_64_intdigest(snapshot.encode())


@cache  # once in a process is enough: it will be so again
def _warn_of_no_room(root: Path) -> None:
    log.warning(
        "%s: no room on this file system for a newer hot set, so what is warm stays as it is. Give "
        "it more (a container's /dev/shm: --shm-size), name another folder in SEMISTREAM_HOST_DIR "
        "or HostShare(root=…), or take less memory",
        root,
    )
