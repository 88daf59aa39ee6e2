"""What processes, and the operating system for them, hold in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from pathlib import Path
from typing import Self

from semistream.master.files.drafts import resident_pages


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process: without the files that it maps."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def resident_bytes(path: Path) -> int:
    """Return how much of a file, or of the files of a folder, is in the page cache."""
    if path.is_dir():
        return sum(resident_bytes(file) for file in path.rglob("*") if file.is_file())
    size = path.stat().st_size
    if not size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as data:
        pages = resident_pages(ctypes.addressof(ctypes.c_char.from_buffer(data)), size)
    return pages if pages < 0 else pages * mmap.PAGESIZE


def drop_cached(path: Path) -> int:
    """Ask the operating system to forget the pages of a file, or of the files of a folder.

    Returns
    -------
    int
        How many bytes it still holds: pages that a process maps stay.
    """
    if path.is_dir():
        return sum(drop_cached(file) for file in path.rglob("*") if file.is_file())
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_bytes(path)


class Background:
    """Calls `work` in a thread until the context ends; ``_end`` is set then."""

    def __enter__(self) -> Self:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self.work, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def work(self) -> None:
        """Work until ``_end`` is set."""
        raise NotImplementedError


class PeakMemory(Background):
    """The growth of this process's anonymous memory while the context lasts."""

    def __enter__(self) -> Self:
        self.grown, self._base = 0, anonymous_bytes()
        return super().__enter__()

    def work(self) -> None:
        while True:
            self.grown = max(self.grown, anonymous_bytes() - self._base)
            if self._end.wait(0.001):
                return


class Footprint(Background):
    """The most that the processes below one held, Java's and Python's.

    Anonymous and shared memory in proportion, so that what forked processes share counts once;
    without the page cache.

    Parameters
    ----------
    root
        The process above all of them.
    itself
        Whether it counts too.
    every
        Seconds between two looks: looking costs processor time, which others are timed by.
    """

    def __init__(self, root: int, *, itself: bool = False, every: float = 0.1) -> None:
        self.root, self.itself, self.every = root, itself, every
        self.most: dict[str, int] = {}

    def work(self) -> None:
        while not self._end.is_set():
            self.look()
            self._end.wait(self.every)

    def look(self) -> None:
        """Look once; ``all`` is the most of one moment."""
        held = {"java": 0, "python": 0}
        for pid in [*processes_below(self.root), *([self.root] if self.itself else [])]:
            held["java" if _read(pid, "comm").startswith("java") else "python"] += _held(pid)
        held["all"] = sum(held.values())
        self.most = {name: max(size, self.most.get(name, 0)) for name, size in held.items()}


def _held(pid: int) -> int:
    lines = _read(pid, "smaps_rollup").splitlines()[1:]
    sizes = dict(line.split(":", 1) for line in lines)
    return 1024 * sum(int(sizes.get(name, "0").split()[0]) for name in ("Pss_Anon", "Pss_Shmem"))


def _read(pid: int, what: str) -> str:
    """Read a file of a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except OSError:
        return ""


def processes_below(root: int) -> list[int]:
    """Return the children of a process, and theirs."""
    parents = _parents()

    def is_below(pid: int) -> bool:
        parent = parents.get(pid, 0)
        return parent == root or (parent != 0 and is_below(parent))

    return sorted(pid for pid in parents if is_below(pid))


def python_workers() -> list[int]:
    """Return the Python workers that the daemons of this process's Spark have forked."""
    daemons = {pid for pid in processes_below(os.getpid()) if ".daemon" in _read(pid, "cmdline")}
    return sorted(pid for pid, parent in _parents().items() if parent in daemons)


def _parents() -> dict[int, int]:
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    stats = {pid: _read(pid, "stat") for pid in pids}
    return {pid: int(stat.rpartition(")")[2].split()[1]) for pid, stat in stats.items() if stat}
