"""The memory of processes, looked at again and again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.spark.workers import processes_below

__all__ = ["Footprint"]


@dataclass
class Footprint:
    """Looks at the processes below one, and at it if so chosen: what Java's and Python's hold.

    Anonymous and shared memory in proportion, so that what forked processes share counts once;
    not the files that the operating system keeps in memory.
    """

    root: int
    itself: bool = False
    every: float = 0.1
    """Seconds between two looks: to look costs processor time, which others are timed by."""
    most: dict[str, int] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.is_set():
            self.look()
            self._end.wait(self.every)

    def look(self) -> None:
        """Look once; the sum of all is the most of one moment."""
        held = {"java": 0, "python": 0}
        for pid in [*processes_below(self.root), *([self.root] if self.itself else [])]:
            held["java" if _is_java(pid) else "python"] += _held(pid)
        held["all"] = sum(held.values())
        self.most = {name: max(size, self.most.get(name, 0)) for name, size in held.items()}


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("java")
    except OSError:
        return False


def _held(pid: int) -> int:
    """Give the bytes of a process that has not ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    found = dict(line.split(":", 1) for line in lines[1:])
    return 1024 * sum(int(found[name].split()[0]) for name in ("Pss_Anon", "Pss_Shmem"))
