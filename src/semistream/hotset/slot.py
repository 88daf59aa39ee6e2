"""A slot: a file that holds a generation of a shard of the hot set, whole or not at all.

::

    header     magic, boot, snapshot, generation, where the description is, shard, checksum
    hits       of each join value, at its first row; readers count here
    the rest   heads, chain, the columns' buffers, the description

The checksum is of header and description. The rest is trusted: only this user can write here.

Readers of a slot share its lock, a writer has it alone. The header is made invalid before anything
is written, and valid after everything is.
"""

from __future__ import annotations

import json
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.hotset.sizes import HEADER
from semistream.system.shared_folder import Handle, boot

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["Generation", "Slot"]

_MAGIC = 0x33_544F_4C53  # SLOT3
_WORDS = 8  # magic, boot, snapshot, generation, place of the description, shard, checksum


class Slot:
    """One of the files of a hot set."""

    def __init__(self, path: Path) -> None:
        self.file = Handle(path)
        self._usable = self.file.size >= HEADER or self.file.reserve(HEADER)
        memory = mmap.mmap(self.file.number, HEADER) if self._usable else bytearray(HEADER)
        self._words = np.frombuffer(memory, np.uint64, _WORDS)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.file.size

    @property
    def number(self) -> int:
        """The generation, of whatever snapshot; 0 where there is none."""
        return int(self._words[3]) if self._words[0] == _MAGIC else 0

    @property
    def last(self) -> int:
        """The last generation, even if it is being overwritten."""
        return int(self._words[3])

    @property
    def shard(self) -> int:
        """The shard whose generation this is, if there is one."""
        return int(self._words[6])

    def number_of(self, snapshot: int) -> int:
        """Return the generation, 0 where there is none of this snapshot."""
        words = self._words
        return self.number if words[1] == boot() and words[2] == snapshot else 0

    def read(self, schema: pa.Schema, snapshot: int, shard: int = 0) -> Generation | None:
        """Lock and read the shard's generation in the slot; return None where there is none."""
        if not self.file.lock():
            return None
        words = self._words.copy()
        if self.number_of(snapshot) and self.shard == shard:
            content = self._description(words)
            if words[_WORDS - 1] == self._checksum(words, content):
                return Generation(self, int(words[3]), json.loads(content), schema)
        self.file.unlock()
        return None

    def _description(self, words: npt.NDArray[np.uint64]) -> bytes:
        """Read the description; nothing where it would not lie in the file."""
        start, length = int(words[4]), int(words[5])
        if not 0 < start + length <= self.file.size:
            return b""
        with mmap.mmap(self.file.number, start + length, prot=mmap.PROT_READ) as memory:
            return memory[start:]

    @staticmethod
    def _checksum(words: npt.NDArray[np.uint64], content: bytes) -> int:
        return xxhash.xxh3_64_intdigest(words[:-1].tobytes() + content)

    def begin(self, size: int) -> mmap.mmap | None:
        """Make the slot invalid and map it for writing; return None where there is no room."""
        self._words[0] = 0
        if not (self._usable and self.file.reserve(size)):
            return None
        return mmap.mmap(self.file.number, size)

    def finish(
        self, snapshot: int, generation: int, start: int, length: int, shard: int = 0
    ) -> None:
        """Make the slot valid, with its description at this place."""
        words = np.array([_MAGIC, boot(), snapshot, generation, start, length, shard, 0], np.uint64)
        words[-1] = self._checksum(words, self._description(words))
        self._words[1:] = words[1:]
        self._words[0] = words[0]


class Generation:
    """A generation of a shard, locked for reading; only its hits change. Its memory is the file's.

    Attributes
    ----------
    index
        What `semistream.kernels.chains.probe_shards` must know of it.
    offsets
        Where the buffers of each column begin in its memory, 0 for those that are not there; None
        for a nested column.
    """

    def __init__(
        self, slot: Slot, number: int, description: dict[str, Any], schema: pa.Schema
    ) -> None:
        self.slot, self.number, self.is_locked = slot, number, True
        self._rows: int = description["rows"]
        self.widest: int = description["widest"]
        size, file = description["size"], slot.file.number
        # Two mappings: nothing but the hits can be written to by mistake.
        counted = mmap.mmap(file, max(1, 4 * self._rows), offset=HEADER)
        self.hits = np.frombuffer(counted, np.uint32, self._rows)
        whole = pa.py_buffer(mmap.mmap(file, size, prot=mmap.PROT_READ))
        self.address: int = whole.address
        columns = [
            _column(field.type, self._rows, column, whole)
            for field, column in zip(schema, description["columns"], strict=True)
        ]
        self.batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        self.batch.validate()  # by the sizes of its buffers
        self.codes = self.batch.column(0).to_numpy()
        heads, chain = description["heads"], description["chain"]
        salt = np.array([description["salt"]], np.uint64).view(np.int64)[0]
        where = (self.codes.ctypes.data, self.address + heads[0], heads[1] // 4)
        self.index = (self._rows, *where, self.address + chain[0], salt, self.hits.ctypes.data)
        self.offsets = [_offsets(column) for column in description["columns"]]

    def __len__(self) -> int:
        return self._rows

    def lock(self, snapshot: int) -> bool:
        """Lock the slot again; return whether it was free and still has this generation.

        The memory is mapped already; whether it has changed is known once it cannot any more.
        """
        self.is_locked = self.is_locked or self.slot.file.lock()
        if self.is_locked and self.slot.number_of(snapshot) != self.number:
            self.leave()
        return self.is_locked

    def leave(self) -> None:
        """Unlock the slot; nothing here may be read before it is locked again."""
        if self.is_locked:
            self.slot.file.unlock()
        self.is_locked = False


def _offsets(description: dict[str, Any]) -> list[int] | None:
    buffers = description.get("buffers")
    return None if buffers is None else [place[0] if place else 0 for place in buffers]


def _column(
    kind: pa.DataType, rows: int, description: dict[str, Any], whole: pa.Buffer
) -> pa.Array:
    """Read a column: of buffers, or of a message where the type is nested."""
    if "message" in description:
        content = whole.slice(*description["message"])
        return pa.ipc.read_record_batch(content, pa.schema([("", kind)])).column(0)
    buffers = [None if place is None else whole.slice(*place) for place in description["buffers"]]
    return pa.Array.from_buffers(kind, rows, buffers, description["nulls"])
