"""What a figure was measured on."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from semistream.master.files import held_pages

__all__ = ["anonymous_bytes", "describe", "resident_bytes", "source_hash"]


def describe() -> dict[str, object]:
    """Give the machine, its versions and its load, for a record of results."""
    packages = ("semistream", "numpy", "pyarrow", "numba")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "source": source_hash(),
        "versions": {name: version(name) for name in packages},
    }


def source_hash() -> str:
    """Give a hash of the package's code, that which measures and shows it apart."""
    folder = Path(__file__).parent
    files = (file.relative_to(folder) for file in folder.rglob("*.py"))
    measuring = {"bench", "reproduce"}
    code = (folder / file for file in sorted(files) if measuring.isdisjoint(file.parts))
    return sha256(b"".join(file.read_bytes() for file in code)).hexdigest()[:12]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


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
        pages = held_pages(address, size)
    return pages if pages < 0 else pages * mmap.PAGESIZE
