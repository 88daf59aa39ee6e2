"""Spark's Python workers, as ``/proc`` tells of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["kill_one", "python_workers"]


def python_workers() -> list[int]:
    """Give the processes that the daemons of this process's Spark have forked."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").glob("[0-9]*")}
    daemons = {pid for pid in parents if _is_daemon(pid) and os.getpid() in _above(pid, parents)}
    return sorted(pid for pid, parent in parents.items() if parent in daemons)


def kill_one() -> int:
    """End a worker by SIGKILL; give its number."""
    pid = python_workers()[0]
    os.kill(pid, signal.SIGKILL)
    return pid


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def _is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    above = []
    while pid := parents.get(pid, 0):
        above.append(pid)
    return above
