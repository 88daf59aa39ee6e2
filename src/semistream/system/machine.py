"""What the machine at hand is, and what of its memory is free."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["describe", "free_memory", "process_above", "process_memory"]

_GROUPS = Path("/sys/fs/cgroup")
_FILES = (  # limit, usage, and what stands before the names in memory.stat; version 2, then 1
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)


def describe() -> dict[str, object]:
    """Return what decides how fast this machine is: its processor, and the versions of packages."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("semistream", "numpy", "pyarrow", "numba")},
    }


def free_memory() -> int:
    """Return the bytes that processes here could still use, their files in memory included.

    That is what the host has available, or what a control group around this process leaves if that
    is less: its limit without the memory in use, of which cached files do not count.
    """
    return min([_available(), *_left_by_groups()])


def process_memory(number: int) -> int:
    """Return the resident bytes of a process, 0 if there is none."""
    return 1024 * int(_status(number).get("VmRSS", "0 kB").split()[0])


def process_above(name: str) -> int:
    """Return the nearest process above this one with this name, 0 if there is none."""
    number = os.getppid()
    while number and _status(number).get("Name", "").strip() != name:
        number = int(_status(number).get("PPid", 0))
    return number


def _status(number: int) -> dict[str, str]:
    lines = _text(Path(f"/proc/{number}/status")).splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _available() -> int:
    return 1024 * _numbers(Path("/proc/meminfo")).get("MemAvailable:", 0)


def _left_by_groups() -> Iterator[int]:
    """Yield what each memory control group around this process leaves, innermost first."""
    for group in _groups(Path("/proc/self/cgroup"), _GROUPS):
        for limit, usage, prefix in _FILES:
            most, used = _text(group / limit).strip(), _text(group / usage).strip()
            if most.isdigit() and used.isdigit():  # "max" is no limit
                stat = _numbers(group / "memory.stat")
                files = sum(stat.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
                yield max(0, int(most) - int(used) + files)


def _groups(own: Path, root: Path) -> Iterator[Path]:
    """Yield the folders of the groups; in a container the outermost may be all that is seen."""
    for line in _text(own).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            top = root / "memory" if controllers else root
            group = top / path.lstrip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _numbers(file: Path) -> dict[str, int]:
    """Read lines that begin with a name and a number."""
    lines = (line.split() for line in _text(file).splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # not there, as most of these files are not on most systems
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
