"""Looking stream rows up in pages that lie in memory, many rows and pages in one compiled call.

Where the operating system holds a mapped master's pages, a row need not wait for its page: it is
there. A page's buffers are noted when the page is first asked for (and its checksum verified).
"""

from __future__ import annotations

import mmap
import resource
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from semistream.arrow.gather import OutputColumns
from semistream.arrow.page_directory import PageDirectory
from semistream.kernels.search import even_step, look_up
from semistream.system.shared_folder import Handle, boot, open_folder, reserve, sweep_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from semistream.engine.output import Output
    from semistream.engine.window import Chunk
    from semistream.master import FileMaster
    from semistream.master.files.reader import PageReader

__all__ = ["Directory", "Lookup", "page_faults"]

_SEVERAL = -1  # the offset of the codes of a page that has fragments
_FORMAT = 2  # raise it when what the bytes mean changes
_MINUTES = 10  # without a reader; then a directory of other columns is removed
_REPLACED = 1  # minute, where the same columns of another snapshot are read by now


def page_faults() -> int:
    """Return how often this thread has waited for a mapped page to be read from disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


class Lookup:
    """Finds rows in the pages of a mapped master.

    Parameters
    ----------
    master
        The master, opened with ``read="mapped"``.
    reader
        Its reader.
    wanted
        The columns that are gathered.
    output
        Has room for what one call finds.
    root
        A folder in which processes of this host share what they know of pages.
    """

    def __init__(
        self,
        master: FileMaster,
        reader: PageReader,
        wanted: Sequence[str],
        output: Output,
        root: Path | None = None,
    ) -> None:
        self._master, self._reader, self._output = master, reader, output
        page, first, self._directory = master.page_schema, master.index.first_part, None
        steps = 4 * master.pages
        size = steps + PageDirectory.shared_bytes(page, wanted, master.pages)
        if root is not None:
            self._directory = Directory(root, master, wanted, size)
        noted = self._directory.bytes if self._directory else np.zeros(size, dtype=np.uint8)
        self._steps = noted[:steps].view(np.int32)
        self._blocks = PageDirectory(page, wanted, master.pages, noted[steps:])
        self._blocks.start[:] = reader.starts if first is None else reader.starts[first]
        self._rows = master.index.rows if first is None else master.index.rows[first]
        self._rows.flags.writeable = False  # as an index's
        self._faults = 0
        self.is_unique = master.statistics.most_duplicates <= 1
        self._later = np.empty(0 if first is None else len(output.rows), dtype=np.int64)

    @staticmethod
    def cost(master: FileMaster, wanted: Iterable[str], rows: int) -> int:
        """Return the bytes of a directory of all pages, and of the indices of so many rows."""
        each = 8 + PageDirectory.cost(master.page_schema, wanted)  # beside it its rows and its step
        return each * master.pages + 8 * rows

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        beside = self._steps.nbytes + self._rows.nbytes
        return self._blocks.nbytes + beside + self._later.nbytes

    @property
    def rows(self) -> int:
        """How many rows may be looked up in one call."""
        return len(self._output.rows)

    def look_up(
        self, chunk: Chunk, at: tuple[int, int], once: bool, room: int
    ) -> tuple[tuple[int, int], int, int, npt.NDArray[np.int64]]:
        """Find rows of a chunk from ``at`` on; pairs and absent rows stand in the output's arrays.

        Returns
        -------
        tuple
            Where it stopped, how many pairs and how many absent rows there are, and which rows
            belong to pages with several parts.
        """
        rule = (self.is_unique, once)
        o, blocks = self._output, self._blocks
        index = (self._master.index.page_code, self._rows)
        where = (blocks.start, blocks.codes, self._steps)
        out = (o.rows[:room], o.blocks, o.positions, o.absent, self._later)
        state, page = (*at, 0, 0, 0), 0
        self._faults -= page_faults()
        while page >= 0:
            state, page = look_up(chunk.codes, chunk.pages, index, where, state, rule, out)
            if page >= 0:
                self._note(int(page))
        row, position, found, missing, deferred = state
        return (row, position), found, missing, self._later[:deferred].copy()

    def _note(self, page: int) -> None:
        parts = self._master.parts(page)
        if len(parts) > 1:
            self._blocks.codes[page] = _SEVERAL
            return
        (address,) = self._reader.addresses(parts)
        codes = self._blocks.codes_at(address)
        self._steps[page] = even_step(
            codes, int(self._rows[page])
        )  # first: see `PageDirectory.note`
        self._blocks.note(page, np.array([address]))

    def gather(self, found: int) -> OutputColumns:
        """Take the columns of the first ``found`` pairs of those that were just found."""
        where = self._output.blocks[:found], self._output.positions[:found]
        columns = self._blocks.gather_all(*where, self._output.buffers)
        self._faults += page_faults()
        return OutputColumns.of(columns)

    def new_faults(self) -> int:
        """Return how often looking up has waited for the disk since this was last asked."""
        faults, self._faults = self._faults, 0
        return faults


class Directory:
    """Bytes that all processes on a host map, zero at first.

    A page is verified, and its buffers are noted, by whoever wants it first. There is no lock: two
    who note one page write the same, and what all pages share is only ever set, never cleared.

    Parameters
    ----------
    root
        The folder of all states.
    master
        The master; another snapshot has another directory.
    wanted
        The columns that are gathered.
    size
        The bytes.
    """

    def __init__(self, root: Path, master: FileMaster, wanted: Sequence[str], size: int) -> None:
        place = master.identity
        kin = f"pages-{_FORMAT}-{_digest(place)}-"
        replaced = f"{kin}{_digest(repr(list(wanted)))}-"
        told = f"{boot()} {master.snapshot} {master.manifest.page_bytes} {size}"
        name = f"{replaced}{_digest(told)}"
        if not (root / name).exists():  # what no one reads any more is outside of every budget
            sweep_folder(root, _REPLACED / 1440, replaced)
            sweep_folder(root, _MINUTES / 1440, kin)
        folder, self._folder = open_folder(root, name)
        file = Handle(folder / "directory")
        reserve(file, folder / "directory", size)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(file.number, size), np.uint8)
        file.close()


def _digest(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())
