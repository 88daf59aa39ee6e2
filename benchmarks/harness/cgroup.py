"""A memory cgroup of our own, version 1 or 2, for processes that shall not have more."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import SemistreamError

_ROOT = Path("/sys/fs/cgroup")
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_SEEN_AT = {1: _ROOT / "memory", 2: _ROOT}
# Of <linux/sched.h> and <linux/mount.h>.
_NEW_MOUNTS, _BIND, _RECURSIVE, _PRIVATE = 0x20000, 1 << 12, 1 << 14, 1 << 18
_REMOVAL = 100  # tenths of a second in which killed processes of a gigabyte are gone


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

    def add(self, pid: int) -> None:
        """Move a process into the group; what it allocates and starts from now on counts here."""
        self.members.write_text(str(pid))

    def show_as_root(self) -> None:
        """Let this process, and all that it starts, see the group where a container sees its own.

        Else programs that look for their limit find that of the machine.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        place = str(_SEEN_AT[self.version]).encode()
        failed = (  # one after the other: the mounts are only for what has its own
            libc.unshare(_NEW_MOUNTS)
            or libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None)
            or libc.mount(str(self.path).encode(), place, None, _BIND, None)
        )
        if failed:
            msg = f"the group can't be mounted at {place.decode()}: not without root's rights"
            raise NoGroupError(msg)

    def read_usage(self) -> dict[str, int]:
        """Return the most bytes that members had, how often the limit was hit, and kills for it.

        Kernels before 5.19 have no peak in version 2.
        """
        peak = self.path / _PEAK[self.version]
        usage = {"peak": int(peak.read_text())} if peak.exists() else {}
        if self.version == 1:
            limited, killed = self._read_number("memory.failcnt"), "memory.oom_control"
        else:
            limited, killed = self._read_number("memory.events", "max"), "memory.events"
        return usage | {"limited": limited, "killed": self._read_number(killed, "oom_kill")}

    def _read_number(self, file: str, name: str = "") -> int:
        """Return the number in a file, or behind a name in it."""
        lines = (self.path / file).read_text().splitlines()
        pairs = [("", *line.split())[-2:] for line in lines]
        return next(int(number) for before, number in pairs if before == name)

    def end_members(self) -> None:
        """Kill what is left in the group: only what was started there is."""
        for pid in self.members.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@contextmanager
def memory_group(name: str) -> Iterator[MemoryGroup]:
    """Make a group, and remove it afterwards, with all processes that are still in it."""
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
        _remove(MemoryGroup(path, version))


def _remove(group: MemoryGroup) -> None:
    """Remove a group; the kernel may need a moment to see that its last process has ended."""
    for attempt in range(_REMOVAL):
        try:
            group.path.rmdir()
        except OSError:
            if attempt == _REMOVAL - 1:
                raise
            group.end_members()
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
