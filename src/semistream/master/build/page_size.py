"""The page size that suits a disk: what it reads in the time that another read would take."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from semistream.master.files.aio import reads_per_second
from semistream.master.files.format import ALIGNMENT, aligned

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEFAULT", "best_page_bytes", "page_for"]

DEFAULT = 128 << 10
"""Bytes, where nothing is measured: good for scans, and as large as any disk wants it."""
_LEAST = 8 << 10  # bytes: of smaller pages, headers and the index would be a large part
_FILE = 64 << 20  # bytes that are read: more than a disk's own cache of a stream
_SECONDS = 0.15  # for each of the two


def best_page_bytes(folder: Path) -> int:
    """Measure the disk that a folder is or will be on, in a second; return the size of a page.

    A smaller page costs nearly as much as this one, for a read has a price of its own; a larger one
    mostly brings rows that no one has asked for. Where the file system has no direct or no
    asynchronous reads it is `DEFAULT`.
    """
    while not folder.exists():  # a new master's folder is made when it is built
        folder = folder.parent
    try:
        # It has no name, so that nothing stays of a build that dies.
        with tempfile.TemporaryFile(dir=folder) as file:
            some = os.urandom(1 << 20)
            for _ in range(_FILE >> 20):
                file.write(some)
            file.flush()
            os.fsync(file.fileno())
            handle = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_DIRECT)
            try:
                large, small = (_per_second(handle, size) for size in (DEFAULT, ALIGNMENT))
            finally:
                os.close(handle)
    except OSError:
        return DEFAULT
    return page_for(large * DEFAULT, small) if large and small else DEFAULT


def page_for(bandwidth: float, reads: float) -> int:
    """Return the size of a page for a disk of so many bytes and so many reads a second.

    Examples
    --------
    >>> page_for(bandwidth=1.5e9, reads=65_000), page_for(2e8, 100), page_for(7e9, 1e6)
    (24576, 131072, 8192)
    """
    return min(max(aligned(int(bandwidth / max(reads, 1.0))), _LEAST), DEFAULT)


def _per_second(handle: int, size: int) -> float | None:
    offsets = size * np.random.default_rng(0).permutation(_FILE // size)
    return reads_per_second(handle, size, offsets, _SECONDS)
