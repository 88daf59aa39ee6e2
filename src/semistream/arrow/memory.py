"""Arrow and NumPy memory that goes back to the operating system when it is freed.

A budget in bytes is a promise about the process, so memory that a join has freed must not stay
with an allocator. Arrow's default allocator (mimalloc) keeps freed segments, and so does malloc
once it has raised its threshold for large blocks by itself: with either, a join of 24 MB made the
process grow by 36 to 70 MB. So what the engine allocates comes from malloc, and malloc is told, for
the whole process, to give every block of 64 KB or more its own mapping: then growth stays within
the budget. A mapping costs its page faults, one to two percent of a join's time.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import BudgetError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

__all__ = [
    "allocate",
    "concat",
    "concat_rows",
    "give_back_memory",
    "private_memory",
    "select",
    "take",
    "take_rows",
]

_POOL = pa.system_memory_pool()
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
# Bytes: a larger block gets a mapping of its own, at the price of its page faults.
_LARGE = 64 * 1024


@cache
def give_back_memory() -> None:
    """Make malloc return large blocks to the system on free; do nothing without glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE)
    mallopt(_M_TRIM_THRESHOLD, _LARGE)


def private_memory(size: int) -> mmap.mmap:
    """Return zeroed memory of this process alone; without the flags, children would share it."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        msg = (
            f"the operating system does not give {format_bytes(size)} ({error.strerror}); the "
            "memory of a join must fit this machine: ask for less"
        )
        raise BudgetError(msg) from error


def allocate(size: int) -> pa.ResizableBuffer:
    """Return uninitialised memory; what is never written to takes none."""
    return pa.allocate_buffer(size, memory_pool=_POOL, resizable=True)


def take(array: pa.Array, rows: pa.Array) -> pa.Array:
    """Return the values at these rows, which must exist."""
    return pc.take(array, rows, boundscheck=False, memory_pool=_POOL)


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Return these rows of a batch, in memory of their own."""
    index = pa.array(rows)
    columns = [take(column, index) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def concat_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all rows in one batch."""
    schema = batches[0].schema
    columns = [concat([batch.column(i) for batch in batches]) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def select(array: pa.Array, keep: pa.Array) -> pa.Array:
    """Return the values for which ``keep`` is true."""
    return pc.filter(array, keep, memory_pool=_POOL)


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return all values in one array."""
    return pa.concat_arrays(arrays, memory_pool=_POOL)
