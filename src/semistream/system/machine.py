"""A description of the machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

__all__ = ["describe", "source_hash"]


def describe() -> dict[str, object]:
    """Describe the machine, its versions and its load, for a record of results."""
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
    """Return a hash of the package's code."""
    code = sorted(Path(__file__).parents[1].rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in code)).hexdigest()[:12]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
