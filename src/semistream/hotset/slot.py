"""A slot: a file that holds one generation of the hot set, whole or not at all.

::

    header     magic, boot, snapshot, generation, where the description is, checksum
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

from semistream.engine.cache import HashedRows
from semistream.hotset.sizes import HEADER
from semistream.kernels.chains import find_values
from semistream.system.shared_folder import Handle, boot

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["Generation", "Slot"]

_MAGIC = 0x32_544F_4C53  # SLOT2
_WORDS = 7  # magic, boot, snapshot, generation, start and length of the description, checksum


class Slot:
    """One of the two files of a hot set."""

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

    def number_of(self, snapshot: int) -> int:
        """Return the generation, 0 where there is none of this snapshot."""
        words = self._words
        return self.number if words[1] == boot() and words[2] == snapshot else 0

    def read(self, schema: pa.Schema, snapshot: int) -> Generation | None:
        """Lock and read the generation in the slot; return None where there is none."""
        if not self.file.lock():
            return None
        words = self._words.copy()
        if self.number_of(snapshot):
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

    def finish(self, snapshot: int, generation: int, start: int, length: int) -> None:
        """Make the slot valid, with its description at this place."""
        words = np.array([_MAGIC, boot(), snapshot, generation, start, length, 0], np.uint64)
        words[-1] = self._checksum(words, self._description(words))
        self._words[1:] = words[1:]
        self._words[0] = words[0]


class Generation(HashedRows):
    """A generation of the hot set; only its hits change.

    It is a `semistream.engine.cache.CachedRows`, and its memory is the file's.
    """

    def __init__(
        self, slot: Slot, number: int, description: dict[str, Any], schema: pa.Schema
    ) -> None:
        self.slot, self.number = slot, number
        self._rows: int = description["rows"]
        self.widest: int = description["widest"]
        self._salt = np.uint64(description["salt"])
        size, file = description["size"], slot.file.number
        # Two mappings: nothing but the hits can be written to by mistake.
        counted = mmap.mmap(file, max(1, 4 * self._rows), offset=HEADER)
        self.hits = np.frombuffer(counted, np.uint32, self._rows)
        memory = mmap.mmap(file, size, prot=mmap.PROT_READ)
        self._heads, self._chain = (
            np.frombuffer(memory, np.int32, length // 4, start)
            for start, length in (description["heads"], description["chain"])
        )
        whole = pa.py_buffer(memory)
        columns = [
            _column(field.type, self._rows, column, whole)
            for field, column in zip(schema, description["columns"], strict=True)
        ]
        self.batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        self.batch.validate()  # by the sizes of its buffers
        self.codes = self.batch.column(0).to_numpy()

    def __len__(self) -> int:
        return self._rows

    def find(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the first row of each code, −1 where there is none; count no hits."""
        first = np.empty(len(codes), dtype=np.int64)
        find_values(codes, self.codes, self._heads, self._chain, self._salt, first)
        return first

    def leave(self) -> None:
        """Unlock the slot; nothing here may be read any more."""
        self.slot.file.unlock()


def _column(
    kind: pa.DataType, rows: int, description: dict[str, Any], whole: pa.Buffer
) -> pa.Array:
    """Read a column: of buffers, or of a message where the type is nested."""
    if "message" in description:
        content = whole.slice(*description["message"])
        return pa.ipc.read_record_batch(content, pa.schema([("", kind)])).column(0)
    buffers = [None if place is None else whole.slice(*place) for place in description["buffers"]]
    return pa.Array.from_buffers(kind, rows, buffers, description["nulls"])
