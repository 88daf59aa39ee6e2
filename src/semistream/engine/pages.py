"""Pages in memory that the window is matched against: one, or a page run.

`match_run` sees pages by the address of their codes. What differs is only where the other columns
are gathered from: compiled code takes flat columns (fixed width, boolean, string, binary) of a
whole run by the addresses of their buffers; nested ones are taken by Arrow, page by page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.memory import allocate

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.arrow.gather import OutputColumns
    from semistream.arrow.page_directory import PageDirectory
    from semistream.engine.output import Assembler
    from semistream.master.files.index import Index
    from semistream.master.files.reader import PageReader

    Ints = npt.NDArray[np.int64]

__all__ = ["BatchPage", "MessageRun", "Page", "PageRun"]


@dataclass(frozen=True)
class Page:
    """A page, or a fragment of one, as the Arrow message that lies at an address."""

    number: int
    part: int
    """The fragment, numbered over the whole master."""
    address: int
    reader: PageReader
    memory: pa.Buffer | None = None
    """Where it was copied to; None: it is the disk buffer's, and valid until the next read."""

    @property
    def batch(self) -> pa.RecordBatch:
        """Its rows, parsed by Arrow, which costs 10 to 30 µs."""
        return self.reader.batch(self.part, self.address)

    @property
    def nbytes(self) -> int:
        """Bytes of its own memory."""
        return 0 if self.memory is None else self.memory.size

    def copy(self) -> Page:
        """Return this page in memory of its own."""
        memory = allocate(self.reader.length(self.part))
        source = pa.foreign_buffer(self.address, memory.size)
        np.frombuffer(memory, np.uint8)[:] = np.frombuffer(source, np.uint8)
        return replace(self, address=memory.address, memory=memory)


class PageRun(ABC):
    """Pages in ascending order, or one fragment; ``last`` if nothing of its page comes after it."""

    last: bool = True
    pages: tuple[Ints, npt.NDArray[np.int32], Ints, npt.NDArray[np.int32], Ints, Ints]
    """Of each page its number, its rows, its address, the offset of its codes, its first code, and
    the first code of the page behind it, or its own where there is none."""
    widest: int
    """Bytes of the largest row."""

    def __len__(self) -> int:
        return len(self.pages[0])

    @abstractmethod
    def gather(
        self, right: OutputColumns, blocks: npt.NDArray[np.int32], positions: npt.NDArray[np.int64]
    ) -> None:
        """Append the columns of output at these positions of these pages of the run."""


class MessageRun(PageRun):
    """Arrow messages whose buffers are noted in a directory of page runs."""

    def __init__(
        self, numbers: Ints, parts: Ints, addresses: Ints, index: Index, directory: PageDirectory
    ) -> None:
        directory.note(0, addresses)
        codes, count = index.page_code, len(numbers)
        bounds = codes[numbers], codes[np.minimum(numbers + 1, len(codes) - 1)]
        where = directory.start[:count], directory.codes[:count]
        self.pages = (numbers, index.rows[parts], *where, *bounds)
        self.widest = int(index.widest[parts].max())
        self._directory = directory

    def gather(
        self, right: OutputColumns, blocks: npt.NDArray[np.int32], positions: npt.NDArray[np.int64]
    ) -> None:
        """Append in one compiled call, or one a column."""
        right.append_from(self._directory, blocks, positions)


class BatchPage(PageRun):
    """A record batch as a page: one with nested columns, or what a database sent."""

    def __init__(
        self, number: int, batch: pa.RecordBatch, widest: int, last: bool, assembler: Assembler
    ) -> None:
        codes = batch.column(0)
        address = codes.buffers()[1].address + 8 * codes.offset if len(codes) else 0
        rows, none = np.array([len(codes)], dtype=np.int32), np.zeros(1, dtype=np.int32)
        first = np.array([codes[0].as_py() if len(codes) else 0])
        self.pages = (np.array([number]), rows, np.array([address]), none, first, first)
        self.widest, self.last = widest, last
        self._columns = assembler.columns(batch)

    def gather(
        self, right: OutputColumns, blocks: npt.NDArray[np.int32], positions: npt.NDArray[np.int64]
    ) -> None:
        """Append by an Arrow call for each column that is not of fixed width."""
        del blocks  # there is one page
        right.append(self._columns, positions)
