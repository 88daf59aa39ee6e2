"""Spark's Python workers, as ``/proc`` tells of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["kill_one", "processes_below", "python_workers"]


def processes_below(root: int) -> list[int]:
    """Give the children of a process, and theirs."""
    parents = _parents()
    return sorted(pid for pid in parents if root in _above(pid, parents))


def python_workers() -> list[int]:
    """Give the processes that the daemons of this process's Spark have forked."""
    daemons = {pid for pid in processes_below(os.getpid()) if _is_daemon(pid)}
    return sorted(pid for pid, parent in _parents().items() if parent in daemons)


def kill_one() -> int:
    """End a worker by SIGKILL; give its number."""
    pid = python_workers()[0]
    os.kill(pid, signal.SIGKILL)
    return pid


def _parents() -> dict[int, int]:
    return {int(entry.name): _parent(entry) for entry in Path("/proc").glob("[0-9]*")}


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def _is_daemon(pid: int) -> bool:
    try:
        return b"spark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    above = []
    while pid := parents.get(pid, 0):
        above.append(pid)
    return above
