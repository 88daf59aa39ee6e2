"""What one join sees of a host's state: the newest hot set, and a way to make a newer one."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.hotset.common import Common
from semistream.hotset.merge import choose_rows, unchanged_rows, write
from semistream.hotset.sizes import BESIDE, overhead
from semistream.hotset.slot import Slot
from semistream.system.shared_folder import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from semistream.hotset.merge import Chosen
    from semistream.hotset.sizes import HostSizes
    from semistream.hotset.slot import Generation
    from semistream.hotset.warm import Warm

    Flags = npt.NDArray[np.bool_]

__all__ = ["HostState"]

log = logging.getLogger(__name__)

_PERIOD = 10  # times as many stream rows as there is room for: then counts are halved
_LEAST_PERIOD = 1024


class HostState:
    """The state that all joins of one kind have on a host.

    Parameters
    ----------
    root
        The folder of all states.
    warm
        What is held.
    sizes
        The bytes that it may have; part of its name, so that all who meet there agree.
    """

    def __init__(self, root: Path, warm: Warm, sizes: HostSizes) -> None:
        self._root = root
        self._schema, self._snapshot, self._sizes = warm.schema, warm.snapshot, sizes
        folder, self._folder = open_folder(root, warm.name(sizes))
        self._common = Common(folder / "common", sizes)
        self._slots = [Slot(folder / name) for name in ("a", "b")]
        self._warm, self._inherits = warm, bool(warm.master.manifest.parent)
        self._now: Generation | None = None
        self._held = False
        self._row = warm.row_bytes + BESIDE
        self._staged_schema = pa.schema([pa.field("", pa.uint32()), *warm.schema])
        self.sketch = self._common.sketch
        self.alive: Callable[[pa.RecordBatch], Flags] | None = None
        """Tells which rows still count, where that is not all; newer ones take their place."""

    @property
    def memory_used(self) -> dict[str, int]:
        """Bytes of the files, whoever caused them."""
        return {
            "host cache": sum(slot.nbytes for slot in self._slots),
            "host staged": self._sizes.staged,
            "host counters": self._common.nbytes - self._sizes.staged,
        }

    @property
    def threshold(self) -> float:
        """How often a row must have been asked for, to be held."""
        return self._common.threshold

    @property
    def staging(self) -> int:
        """Bytes for further rows on their way."""
        return self._sizes.staged - self._common.staged_bytes(self._snapshot)

    def newest(self) -> Generation | None:
        """Give the newest hot set; it is not overwritten until `rest` is called."""
        if not self._folder.is_ours:
            return None  # locks are those of the process that this was forked from
        if self._may_inherit:
            with self._common.alone() as alone:
                if alone:
                    self._inherit()
        return self._newest()

    def _newest(self) -> Generation | None:
        numbers = self._numbers()
        slot = self._slots[numbers.index(max(numbers))]
        if self._now is None or self._now.number != max(numbers):
            self.rest()
            self._now = slot.read(self._schema, self._snapshot) if max(numbers) else None
            self._held = self._now is not None
        elif not self._held:
            # The memory is mapped already; whether it has changed is known once it cannot any more.
            self._held = slot.file.lock()
            if self._held and slot.number_of(self._snapshot) != self._now.number:
                self.rest()
        return self._now if self._held else None

    def _numbers(self) -> list[int]:
        return [slot.number_of(self._snapshot) for slot in self._slots]

    @property
    def _may_inherit(self) -> bool:
        if not self._inherits or any(self._numbers()):
            return False
        return any(slot.number for slot in self._slots)

    def _inherit(self) -> None:
        """Make a generation of what an earlier snapshot left, without the rows that changed.

        The caller is alone: what is locked here once more would be unlocked for the caller, too.
        """
        if not self._may_inherit:
            return  # someone else was faster
        for snapshot, changed in self._warm.older(self._sizes.merge):
            found = [slot for slot in self._slots if slot.number_of(snapshot)]
            if found:
                self._inherits = not self._carry(max(found, key=_number), snapshot, changed)
                return
        self._inherits = False  # all that is there is someone else's

    def _carry(self, source: Slot, snapshot: int, changed: npt.NDArray[np.int64]) -> bool:
        """Write the unchanged rows of a slot to the other one; tell whether that was possible."""
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
        """Write a generation into a slot, whole or not at all."""
        place = write(slot, sources, chosen) if len(chosen.block) else None
        if place is None:
            return False
        slot.finish(self._snapshot, max(s.last for s in self._slots) + 1, *place)
        return True

    def rest(self) -> None:
        """Let the hot set be overwritten: it is not looked at before `newest` gives it again."""
        if self._now is not None and self._held:
            self._now.leave()
        self._held = False

    def count(self, rows: int) -> None:
        """Note stream rows; let all counts age when it is time."""
        self._common.count(rows)
        room = max(_LEAST_PERIOD, self._sizes.slot / self._row)
        if self._common.rows > _PERIOD * room:
            with self._common.alone() as alone:
                if alone and self._common.rows > _PERIOD * room:  # no one else was faster
                    self._age()

    def _age(self) -> None:
        now = self._newest()
        if now is not None:
            np.right_shift(now.hits, 1, out=now.hits)
            self.rest()
        self._common.age()

    def stage(self, rows: pa.RecordBatch, hits: npt.NDArray[np.int64]) -> None:
        """Note rows, whole join values, for the next hot set, unless someone is making it."""
        with self._common.alone() as alone:
            if alone:
                columns = [pa.array(hits.astype(np.uint32)), *rows.columns]
                staged = pa.RecordBatch.from_arrays(columns, schema=self._staged_schema)
                self._common.stage(staged, self._snapshot)

    def publish(self) -> None:
        """Make the next hot set if it is worth it, and no one else does; `rest` afterwards."""
        if self._common.staged_bytes(self._snapshot) < self._enough():
            return
        with self._common.alone() as alone:
            if alone:
                try:
                    self._publish()
                finally:
                    self.rest()

    def _enough(self) -> int:
        """Give how many bytes are worth a new generation, which costs as much as it has rows."""
        held = len(self._now) * self._row if self._now else 0.0
        return int(max(self._sizes.staged / 16, min(held / 16, self._sizes.staged / 2)))

    def _publish(self) -> None:
        """Make a new generation of the newest one and the rows on their way, if a slot is free."""
        self._inherit()
        now = self._newest()
        free = sorted((s for s in self._slots if not now or s is not now.slot), key=_number)
        for slot in free if self._common.staged_bytes(self._snapshot) else ():
            if slot.file.lock(alone=True):
                try:
                    self._make(slot, now)
                finally:
                    slot.file.unlock()
                return

    def _make(self, slot: Slot, now: Generation | None) -> None:
        staged = list(self._common.staged(self._staged_schema, self._snapshot))
        hits = [batch.column(0).to_numpy() for batch in staged]
        sources = [pa.RecordBatch.from_arrays(b.columns[1:], schema=self._schema) for b in staged]
        if now is not None:
            sources, hits = [now.batch, *sources], [now.hits, *hits]
        room = self._sizes.slot - overhead(len(self._schema))
        chosen = choose_rows(sources, hits, room, self._row, self._still(now, sources))
        if self._finish(slot, sources, chosen):
            self._common.threshold = max(1.0, min(chosen.lost, 254.0))
        elif len(chosen.block):
            _warn_of_no_room(self._root)
        self._common.clear()  # in any case: else whoever comes chooses anew, chunk after chunk

    def _still(self, now: Generation | None, sources: list[pa.RecordBatch]) -> Flags | None:
        """Tell which rows of the present hot set count, and have not come anew."""
        if now is None or self.alive is None:
            return None
        anew = [source.column(0).to_numpy() for source in sources[1:]]
        return self.alive(now.batch) & ~np.isin(now.codes, np.concatenate(anew))

    def close(self) -> None:
        """Give all locks back; the files stay."""
        self.rest()
        self._now = None
        self._common.close()
        for slot in self._slots:
            slot.file.close()
        self._folder.close()


def _number(slot: Slot) -> int:
    return slot.number


@cache  # once in a process is enough: it will be so again
def _warn_of_no_room(root: Path) -> None:
    log.warning(
        "%s: no room on this file system for a newer hot set, so what is warm stays as it is. Give "
        "it more (a container's /dev/shm: --shm-size), name another folder in SEMISTREAM_HOST_DIR "
        "or HostShare(root=…), or take less memory",
        root,
    )
