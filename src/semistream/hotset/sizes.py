"""How an executor's memory is split: a part for the hot set, the rest for its tasks."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semistream.arrow.page_directory import PageDirectory
from semistream.arrow.types import row_width
from semistream.errors import OptionError
from semistream.system.shared_folder import SLOTS

if TYPE_CHECKING:
    import os

    import pyarrow as pa

__all__ = ["BESIDE", "BORN", "HEADER", "HostShare", "HostSizes", "least_row", "overhead", "share"]

HEADER = mmap.PAGESIZE
BORN = "__born"
"""The last column: when a row was queried, in microseconds; negative: the key is absent."""
BESIDE = 17
"""Bytes beside a row in a slot: hits 4, chain 4, heads at most 8, its share of paddings."""
_MERGE = 48  # bytes of memory to choose, for each row to choose from
_MOST_SHARDS = len(SLOTS) - 1  # a shard that is written anew takes a sixteenth more memory
_STAGED = 16  # staged rows have this part of what all rows have
_WORTHWHILE = 16  # times the bytes beside its rows, and a slot is large enough
_LEAST_SLOT = 32 * 1024  # bytes: below, headers take more than rows


def overhead(columns: int) -> int:
    """Return the bytes of a slot that are not for rows: header, description, paddings."""
    return 3 * HEADER + 512 * columns


def least_row(schema: pa.Schema) -> int:
    """Return the bytes that every row has at least."""
    return sum(4 if (width := row_width(kind)) is None else width for kind in schema.types) + 1


@dataclass(frozen=True)
class HostShare:
    """The share of a join in the memory of its host, where several joins have one hot set.

    Parameters
    ----------
    root
        A folder on this host for hot sets: best one in memory, see `default_root`.
    tasks
        The most joins that run at once. A join's ``memory`` is that of all of them.

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
    """The bytes of a hot set, by component.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([("code", pa.int64()), ("name", pa.binary(111))])
    >>> sizes = HostSizes.of(6 << 20, schema, rows=2_000_000, row_bytes=120)
    >>> sizes.shards, sizes.rows_bytes // 137, sizes.total <= 6 << 20
    (16, 37312, True)
    """

    slot: int
    """Bytes of a generation of a shard."""
    shards: int
    """Parts of the hot set; there is one slot more: one is written while the others are read."""
    staged: int
    """Bytes of staged rows."""
    counters: int
    """Bytes of the sketch."""
    merge: int
    """Bytes that whoever makes the next generation needs meanwhile."""

    @classmethod
    def of(cls, size: int, schema: pa.Schema, rows: int, row_bytes: float) -> HostSizes | None:
        """Split so many bytes; return None where that is too little to be of use.

        Parameters
        ----------
        size
            Bytes.
        schema
            The columns that are held, the code first.
        rows, row_bytes
            The number of rows of the master, and the bytes of one.
        """
        counters = 1 << max(0, (size // 16).bit_length() - 1)
        rest = size - counters - HEADER
        # Nested columns are put together outside of the slot, twice for a moment.
        merge = _MERGE / (least_row(schema) + BESIDE) + (0 if PageDirectory.possible(schema) else 2)
        # Rounded up coarsely: a master that grows a little still finds its hot set.
        all_rows = int(rows * (row_bytes + BESIDE)) + 16 * HEADER
        step = 1 << max(0, all_rows.bit_length() - 4)
        most, beside, shards = -(-all_rows // step) * step, overhead(len(schema)), _MOST_SHARDS
        while True:
            staged = max(1 / 8, shards / _STAGED)  # for each byte of a slot
            slot = int(rest / (shards + 1 + merge * (1 + staged) + staged))
            # Codes fall into shards by chance: of a few rows some have more than their part.
            share = most // shards + (0 if shards == 1 else most // (4 * shards) + beside)
            slot = min(slot, share, 2**31 - HEADER) // HEADER * HEADER  # offsets have 32 bits
            if shards == 1 or slot >= max(_LEAST_SLOT, _WORTHWHILE * beside):
                break
            shards //= 2
        if slot < max(_LEAST_SLOT, 2 * beside):
            return None
        staged_bytes = int(slot * staged) // HEADER * HEADER
        return cls(slot, shards, staged_bytes, counters, int(merge * (slot + staged_bytes)))

    @property
    def rows_bytes(self) -> int:
        """Bytes for the rows of all shards."""
        return self.shards * self.slot

    @property
    def components(self) -> dict[str, int]:
        """The bytes by component, named as in a plan."""
        return {
            "host cache": (self.shards + 1) * self.slot,
            "host staged": self.staged,
            "host counters": self.counters + HEADER,
            "host merge": self.merge,
        }

    @property
    def total(self) -> int:
        """All bytes together."""
        return sum(self.components.values())


def share(memory: int, tasks: int, host: float = 0.25) -> tuple[int, int]:
    """Return the bytes for the host, and for each task; ``host`` is the host's fraction.

    Examples
    --------
    >>> share(12 << 20, tasks=8)
    (3145728, 1179648)
    """
    part = int(memory * host)
    return part, (memory - part) // tasks
