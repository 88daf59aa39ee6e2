"""A host's hot set as one join sees it: the newest generations, and a way to make newer ones."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from semistream.hotset.journal import Journal
from semistream.hotset.merge import choose_rows, unchanged_rows, write
from semistream.hotset.shards import Shards
from semistream.hotset.sizes import BESIDE, overhead
from semistream.hotset.slot import Slot
from semistream.kernels.chains import shards_of
from semistream.system.shared_folder import SLOTS, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
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
_TRIES, _PAUSE = 5, 0.001  # seconds: others read a slot for a chunk of rows, about a millisecond
_CHANGED_CODE = 32  # bytes of a changed code, while the changes of several syncs are put together


class HostState:
    """The hot set of all joins of one kind on a host: slots for generations, and a journal.

    Rows are divided into shards by their codes. A shard's next generation is written into the slot
    that no shard uses; then the slot of the one before is the free one. So what is written anew
    takes the memory of one shard, not of all.
    """

    def __init__(self, host: Host) -> None:
        self._root, self._sizes, self._master = host.root, host.sizes, host.master
        self._schema, self._snapshot = host.schema, _number_of(host.master.snapshot)
        folder, self._folder = open_folder(host.root, host.name)
        self._journal = Journal(folder / "common", host.sizes)
        self._slots = [Slot(folder / name) for name in SLOTS[: host.sizes.shards + 1]]
        self._may_have_older = True
        self._generations: list[Generation | None] = [None] * host.sizes.shards
        self._now: Shards | None = None
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
        """Hits that a row must exceed to be staged."""
        return self._journal.threshold

    @property
    def staging(self) -> int:
        """Bytes that are left for staged rows."""
        return self._sizes.staged - self._journal.staged_bytes(self._snapshot)

    def newest(self) -> Shards | None:
        """Return the newest generations; they are not overwritten until `rest` is called."""
        if not self._folder.is_ours:
            return None  # locks are those of the process that this was forked from
        if self._may_inherit:
            with self._journal.alone() as alone:
                if alone:
                    self._inherit()
        return self._newest()

    def _newest(self) -> Shards | None:
        slots = self._slots_of(self._snapshot)
        held: list[Generation | None] = []
        for shard, known in enumerate(self._generations):
            slot = slots.get(shard)
            if known is not None and (slot is not known.slot or slot.number != known.number):
                known.leave()
                self._generations[shard] = known = None  # noqa: PLW2901
            if known is None and slot is not None:
                known = slot.read(self._schema, self._snapshot, shard)  # noqa: PLW2901
                self._generations[shard] = known
            held.append(known if known is not None and known.lock(self._snapshot) else None)
        if self._now is None or self._now.generations != tuple(held):
            self._now = Shards(held, self._schema) if any(held) else None
        return self._now

    def _slots_of(self, snapshot: int) -> dict[int, Slot]:
        """Return for each shard the slot of its newest generation, where it has one."""
        slots = (slot for slot in self._slots if slot.number_of(snapshot))
        return {slot.shard: slot for slot in sorted(slots, key=_number)}

    def _free(self, slots: Iterable[Slot]) -> Slot | None:
        """Return a slot that holds no shard's newest generation, locked for writing."""
        used = set(slots)
        free = sorted((s for s in self._slots if s not in used), key=_number)
        for _ in range(_TRIES):
            for slot in free:
                if slot.file.lock(alone=True):
                    return slot
            time.sleep(_PAUSE)
        return None

    @property
    def _may_inherit(self) -> bool:
        if not self._may_have_older or len(self._slots_of(self._snapshot)) == self._sizes.shards:
            return False
        return any(slot.number and not slot.number_of(self._snapshot) for slot in self._slots)

    def _inherit(self) -> None:
        """Make generations of what an earlier snapshot left, without the rows that changed.

        The caller is alone: what is locked here once more would be unlocked for the caller, too.
        """
        if not self._may_inherit:
            return  # someone else was faster
        for snapshot, changed in self._master.changes_since(self._sizes.merge // _CHANGED_CODE):
            number = _number_of(snapshot)
            if slots := self._slots_of(number):
                self._may_have_older = not self._carry_all(slots, number, changed)
                return
        self._may_have_older = False  # all that is there is someone else's

    def _carry_all(
        self, older: dict[int, Slot], snapshot: int, changed: npt.NDArray[np.int64]
    ) -> bool:
        """Carry the shards that this snapshot has not got; return whether all were possible."""
        slots = self._slots_of(self._snapshot)
        missing = [shard for shard in older if shard not in slots]
        slots = older | slots
        carried = [self._carry(slots, shard, snapshot, changed) for shard in missing]
        return all(carried)

    def _carry(
        self, slots: dict[int, Slot], shard: int, snapshot: int, changed: npt.NDArray[np.int64]
    ) -> bool:
        """Write a shard's unchanged rows to a free slot; return whether that was possible."""
        old = slots[shard].read(self._schema, snapshot, shard)
        target = self._free(slots.values())
        try:
            if old is None or target is None:
                return False
            kept = unchanged_rows(old.batch, old.hits, changed)
            self._finish(target, shard, [old.batch], kept)
        finally:
            if old is not None:
                old.leave()
            if target is not None:
                target.file.unlock()
        slots[shard] = target
        return True

    def _finish(
        self, slot: Slot, shard: int, sources: Sequence[pa.RecordBatch], chosen: Chosen
    ) -> bool:
        """Write a generation into a slot, whole or not at all; return whether there was room."""
        place = write(slot, sources, chosen) if len(chosen.block) else None
        if place is None:
            return False
        slot.finish(self._snapshot, max(s.last for s in self._slots) + 1, *place, shard)
        return True

    @property
    def _is_in_use(self) -> bool:
        """Whether `newest` was called, and `rest` was not yet."""
        return any(each is not None and each.is_locked for each in self._generations)

    def rest(self) -> None:
        """Let generations be overwritten: they are not read before `newest` returns them again."""
        for generation in self._generations:
            if generation is not None:
                generation.leave()

    def count(self, rows: int) -> None:
        """Count stream rows; halve all counts now and then."""
        self._journal.count(rows)
        room = max(_LEAST_PERIOD, self._sizes.rows_bytes / self._row)
        if self._journal.rows > _PERIOD * room:
            with self._journal.alone() as alone:
                if not alone or self._journal.rows <= _PERIOD * room:  # someone else was faster
                    return
                if (now := self._newest()) is not None:
                    for _, generation in now.held:
                        np.right_shift(generation.hits, 1, out=generation.hits)
                    self.rest()
                self._journal.age()

    def stage(self, rows: pa.RecordBatch, hits: npt.NDArray[np.int64]) -> None:
        """Stage rows, whole join values, for the next generation, unless one is being made."""
        with self._journal.alone() as alone:
            if alone:
                columns = [pa.array(hits.astype(np.uint32)), *rows.columns]
                staged = pa.RecordBatch.from_arrays(columns, schema=self._staged_schema)
                if not self._journal.stage(staged, self._snapshot) and not self._is_in_use:
                    try:
                        self._publish()
                    finally:
                        self.rest()
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
        # Rows of files that find no room publish what is staged; those of a database are left out.
        most = self._sizes.staged * (7 / 8 if self.alive is None else 1 / 2)
        return int(max(self._sizes.staged / 16, min(held / 16, most)))

    def _publish(self) -> None:
        """Make new generations of the newest ones and the staged rows, as far as slots are free."""
        self._inherit()
        staged = list(self._journal.staged(self._staged_schema, self._snapshot))
        if not staged:
            return
        self._newest()
        rows = [pa.RecordBatch.from_arrays(b.columns[1:], schema=self._schema) for b in staged]
        hits = [batch.column(0).to_numpy() for batch in staged]
        shards = np.concatenate([self._shards_of(batch.column(0).to_numpy()) for batch in rows])
        ends = np.cumsum([batch.num_rows for batch in rows])
        lost = []
        for shard in self._journal.unwritten:
            sources = [
                _Source(rows[n], hits[n], some)
                for n, some in _by_batch(np.flatnonzero(shards == shard), ends)
            ]
            if sources:
                slot = self._free(self._slots_of(self._snapshot).values())
                if slot is None:
                    break  # someone reads there; whoever publishes next begins with this shard
                try:
                    lost.append(self._make(slot, shard, sources))
                finally:
                    slot.file.unlock()
            self._journal.note_written()
        self._set_threshold([hits for hits in lost if hits >= 0], len(lost))

    def _set_threshold(self, lost: list[float], shards: int) -> None:
        """Note the hits to exceed: none while most shards have room.

        Later a row must be asked for twice at least, or all would come and go.
        """
        if 2 * len(lost) >= shards > 0:
            self._journal.threshold = min(max(1.0, float(np.mean(lost))), 254.0)
        elif shards:
            self._journal.threshold = 0.0

    def _shards_of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        shards = np.empty(len(codes), dtype=np.uint8)
        shards_of(codes, self._sizes.shards, shards)
        return shards

    def _make(self, slot: Slot, shard: int, staged: list[_Source]) -> float:
        """Write a shard's next generation; return the hits of the best row that is left out."""
        now, sources = self._generations[shard], staged
        if now is not None and now.lock(self._snapshot):
            alive = None
            if self.alive is not None:  # rows that count, and were not staged anew
                anew = np.concatenate(
                    [each.rows.column(0).to_numpy()[each.some] for each in staged]
                )
                alive = np.flatnonzero(self.alive(now.batch) & ~np.isin(now.codes, anew))
            sources = [_Source(now.batch, now.hits, alive), *staged]
        room = self._sizes.slot - overhead(len(self._schema))
        rows, hits, some = zip(*sources, strict=True)
        chosen = choose_rows(rows, hits, room, self._row, some)
        if not self._finish(slot, shard, rows, chosen) and len(chosen.block):
            _warn_of_no_room(self._root)
        if now is not None:
            now.leave()  # its slot is the next free one
        return chosen.lost

    def close(self) -> None:
        """Release all locks; the files stay."""
        self.rest()
        self._now, self._generations = None, []
        self._journal.close()
        for slot in self._slots:
            slot.file.close()
        self._folder.close()


class _Source(NamedTuple):
    """Rows to choose from: all of a batch, or some."""

    rows: pa.RecordBatch
    hits: npt.NDArray[np.uint32]
    some: npt.NDArray[np.int64] | None


def _by_batch(
    rows: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield which of these rows, counted over all batches, each batch has that has any."""
    batch = np.searchsorted(ends, rows, side="right")
    numbers, first = np.unique(batch, return_index=True)
    starts = np.append(0, ends[:-1])
    for number, some in zip(numbers.tolist(), np.split(rows, first)[1:], strict=True):
        yield number, some - starts[number]


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
