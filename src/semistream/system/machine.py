"""What the machine at hand is, and what of its memory is free."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["describe", "free_memory"]


def describe() -> dict[str, object]:
    """Return what decides how fast this machine is: its processor, and the versions of packages."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("semistream", "numpy", "pyarrow", "numba")},
    }


def free_memory() -> int:
    """Return the bytes of memory that this host, or its control group, could still use."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next((1024 * int(line[1]) for line in lines if line[0] == "MemAvailable:"), 0)
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = Path(limit).read_text().strip() if Path(limit).exists() else ""
        free = min(free, int(text)) if text.isdigit() else free
    return free


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
