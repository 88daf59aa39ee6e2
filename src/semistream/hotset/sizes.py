"""How an executor's memory is shared: a part for the host, the rest for its tasks."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semistream.arrow.page_directory import PageDirectory
from semistream.arrow.types import row_width
from semistream.errors import OptionError

if TYPE_CHECKING:
    import os

    import pyarrow as pa

__all__ = ["BESIDE", "BORN", "HEADER", "HostShare", "HostSizes", "least_row", "overhead", "share"]

HEADER = mmap.PAGESIZE
BORN = "__born"
"""The last column: when a row was asked for, in microseconds; negative: there is none."""
BESIDE = 17
"""Bytes beside a row in a slot: hits 4, chain 4, heads at most 8, its share of paddings."""
_MERGE = 48  # bytes that it takes to choose, for each row that there is to choose from
_LEAST_SLOT = 32 * 1024


def overhead(columns: int) -> int:
    """Give the bytes of a slot that are not for rows: header, description, paddings."""
    return 3 * HEADER + 512 * columns


def least_row(schema: pa.Schema) -> int:
    """Give the bytes that every row has."""
    return sum(4 if (width := row_width(kind)) is None else width for kind in schema.types) + 1


def _rounded(size: int) -> int:
    """Round up coarsely: a master that grows a little still meets what it left on the host."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


@dataclass(frozen=True)
class HostShare:
    """Tells a join that others run on this host, and that they hold what is warm together.

    Parameters
    ----------
    root
        A folder on this host for what they hold: best one in memory, see `default_root`.
    tasks
        How many joins run at once at the most. A join's ``memory`` is that of all of them.

    Examples
    --------
    >>> HostShare("/dev/shm/mine", tasks=0)
    Traceback (most recent call last):
    semistream.errors.OptionError: tasks=0 is not possible; give how many joins run at once
    """

    root: str | os.PathLike[str]
    tasks: int

    def __post_init__(self) -> None:
        if isinstance(self.tasks, bool) or not isinstance(self.tasks, int) or self.tasks < 1:
            msg = f"tasks={self.tasks!r} is not possible; give how many joins run at once"
            raise OptionError(msg)
        object.__setattr__(self, "root", Path(self.root))


@dataclass(frozen=True)
class HostSizes:
    """The bytes of everything that a host holds.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([("code", pa.int64()), ("name", pa.binary(111))])
    >>> sizes = HostSizes.of(6 << 20, schema, rows=2_000_000, row_bytes=120)
    >>> sizes.slot // 137, sizes.total <= 6 << 20
    (17430, True)
    """

    slot: int
    """Bytes of the hot set; there are two, for one is written while the other is read."""
    staged: int
    """Bytes of rows on their way into the hot set."""
    counters: int
    """Bytes of the sketch."""
    merge: int
    """Bytes that whoever makes the next hot set needs meanwhile."""

    @classmethod
    def of(cls, size: int, schema: pa.Schema, rows: int, row_bytes: float) -> HostSizes | None:
        """Divide so many bytes; give None where that is too little to be of use.

        Parameters
        ----------
        size
            Bytes.
        schema
            The columns that are held, the code first.
        rows, row_bytes
            How many rows the master has, and the bytes of one.
        """
        counters = 1 << max(0, (size // 16).bit_length() - 1)
        rest = size - counters - HEADER
        # Nested columns are put together outside of the slot, twice for a moment.
        merge = _MERGE / (least_row(schema) + BESIDE) + (0 if PageDirectory.possible(schema) else 2)
        all_rows = _rounded(int(rows * (row_bytes + BESIDE)) + 16 * HEADER)
        most = min(all_rows, 2**31 - HEADER)  # offsets of texts have 32 bits
        slot = min(int(rest / (2 + merge * 9 / 8 + 1 / 8)), most) // HEADER * HEADER
        if slot < max(_LEAST_SLOT, 2 * overhead(len(schema))):
            return None
        staged = slot // 8 // HEADER * HEADER
        return cls(slot, staged, counters, int(merge * (slot + staged)))

    @property
    def components(self) -> dict[str, int]:
        """The bytes by component, named as in a plan."""
        return {
            "host cache": 2 * self.slot,
            "host staged": self.staged,
            "host counters": self.counters + HEADER,
            "host merge": self.merge,
        }

    @property
    def total(self) -> int:
        """All bytes together."""
        return sum(self.components.values())


def share(memory: int, tasks: int, host: float = 0.25) -> tuple[int, int]:
    """Give the bytes for the host, and for each task; ``host`` is the host's part of all.

    Examples
    --------
    >>> share(12 << 20, tasks=8)
    (3145728, 1179648)
    """
    part = int(memory * host)
    return part, (memory - part) // tasks
