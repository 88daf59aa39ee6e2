"""The memory that a process and all that it starts have, as ``/proc`` says."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

__all__ = ["PeakMemory", "resident"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """Looks again and again while a block runs; then ``peak`` is the most bytes seen at once.

    Pages that processes share count once for each of them.

    Examples
    --------
    >>> with PeakMemory(os.getpid()) as memory:
    ...     pass
    >>> memory.peak > 1_000_000
    True
    """

    def __init__(self, pid: int, every: float = 0.5) -> None:
        self.peak = 0
        self._pid, self._every = pid, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        self.peak = resident(self._pid)
        while not self._over.wait(self._every):
            self.peak = max(self.peak, resident(self._pid))


def resident(pid: int) -> int:
    """Give the bytes resident in a process and its descendants; none where it has ended."""
    return sum(_bytes(one) for one in _family(pid))


def _family(pid: int) -> list[int]:
    parents = {one: _parent(one) for one in _all()}
    family = [pid]
    for one in family:  # which grows as it is read
        family.extend(child for child, parent in parents.items() if parent == one)
    return family


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _parent(pid: int) -> int | None:
    try:
        # The name, in parentheses, may hold anything.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
