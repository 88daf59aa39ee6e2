"""What a process, and the operating system for it, holds in memory."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from semistream.master.files.drafts import resident_pages

__all__ = ["anonymous_bytes", "resident_bytes"]


def anonymous_bytes() -> int:
    """Give the anonymous memory of this process: what it holds, files that it maps apart."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def resident_bytes(path: Path) -> int:
    """Give how much of a file the operating system holds in memory."""
    size = path.stat().st_size
    if not size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as data:
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        pages = resident_pages(address, size)
    return pages if pages < 0 else pages * mmap.PAGESIZE
