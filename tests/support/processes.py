"""Which processes belong to which, as ``/proc`` says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def command(pid: int) -> str:
    """Its command line; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def descendants(roots: Iterable[int]) -> list[int]:
    """Every process that these started, and those that they started."""
    parents = {pid: _parent(pid) for pid in _all()}
    found: list[int] = []
    ahead = list(roots)
    while ahead:
        one = ahead.pop()
        children = [pid for pid, parent in parents.items() if parent == one]
        found.extend(children)
        ahead.extend(children)
    return found


def python_workers(roots: Iterable[int]) -> list[int]:
    """The Python workers of Spark among the descendants: what its daemon forked."""
    daemons = {pid for pid in descendants(roots) if ".daemon" in command(pid)}
    return sorted(pid for pid in daemons if _parent(pid) in daemons)


def busy_worker(roots: Iterable[int], seconds: float = 60) -> int:
    """Wait for a Python worker that computes: an idle one would not be missed."""
    end = time.monotonic() + seconds
    before: dict[int, int] = {}
    while time.monotonic() < end:
        now = {pid: _ticks(pid) for pid in python_workers(roots)}
        busy = [pid for pid, ticks in now.items() if ticks > before.get(pid, ticks)]
        if busy:
            return busy[0]
        before = now
        time.sleep(0.02)
    raise TimeoutError(f"no Python worker was busy within {seconds} s")


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _ticks(pid: int) -> int:
    """Give the processor time that it used."""
    try:
        return sum(
            map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
        )
    except (OSError, ValueError):
        return 0
