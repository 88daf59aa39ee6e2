"""A memory cgroup of our own, version 1 or 2, for processes that shall not have more."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import SemistreamError

_ROOT = Path("/sys/fs/cgroup")
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}


class NoGroupError(SemistreamError):
    """No memory cgroup can be made here."""


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup below that of this process, so that limits on us hold for it too."""

    path: Path
    version: int

    @property
    def members(self) -> Path:
        """The file that takes the ids of processes."""
        return self.path / "cgroup.procs"

    def limit(self, size: int) -> None:
        """Let the members have so many bytes together, the page cache they cause included."""
        (self.path / _LIMIT[self.version]).write_text(str(size))


@contextmanager
def memory_group(name: str) -> Iterator[MemoryGroup]:
    """Make a group, and remove it afterwards; its processes must have ended."""
    parent, version = _own_group()
    path = parent / f"{name}-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        msg = f"no memory cgroup can be made below {parent}: {error.strerror}"
        raise NoGroupError(msg) from None
    try:
        if not (path / _LIMIT[version]).exists():
            msg = f"{parent} does not let groups below it limit their memory"
            raise NoGroupError(msg)
        yield MemoryGroup(path, version)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a group; the kernel may need a moment to see that its last process has ended."""
    for attempt in range(50):
        try:
            path.rmdir()
        except OSError:
            if attempt == 49:
                raise
            time.sleep(0.1)
        else:
            return


def _own_group() -> tuple[Path, int]:
    """Return the memory cgroup of this process and its version."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _existing(_ROOT / "memory", path), 1
    if (_ROOT / "cgroup.controllers").exists():
        path = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "/")
        return _existing(_ROOT, path), 2
    msg = "this system has no memory cgroups"
    raise NoGroupError(msg)


def _existing(root: Path, path: str) -> Path:
    """Return the folder of a group; in a container the root may be all that is seen of it."""
    folder = root / path.lstrip("/")
    return folder if folder.is_dir() else root
