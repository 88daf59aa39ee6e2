"""Files that appear whole or not at all.

A build writes to unnamed files and gives them their names when all is written, so that a process
that dies, even by SIGKILL, leaves nothing behind. Where a file system has no unnamed files, drafts
have names with a prefix that the next build removes.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Self

from semistream.errors import MasterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Draft", "exclusive"]

_PREFIX = ".draft-"


class Draft:
    """A file under construction in ``folder``; it exists for others once it is published."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name: Path | None = None
        try:
            handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644)
        except OSError:  # no unnamed files here (NFS, some overlays)
            self._name = folder / f"{_PREFIX}{uuid.uuid4().hex}"
            handle = os.open(self._name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        self.file: IO[bytes] = os.fdopen(handle, "w+b", buffering=1 << 20)

    def publish(self, name: str) -> None:
        """Write everything to disk, then give the file its name, replacing what had it."""
        self.file.flush()
        os.fsync(self.file.fileno())
        named = self._name or self._link()
        named.replace(self._folder / name)
        self._name = None

    def _link(self) -> Path:
        named = self._folder / f"{_PREFIX}{uuid.uuid4().hex}"
        # A directory handle, though the path is absolute: else Python calls link(2), which does
        # not follow the symbolic link in /proc.
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.link(f"/proc/self/fd/{self.file.fileno()}", named, src_dir_fd=folder)
        finally:
            os.close(folder)
        return named

    def close(self) -> None:
        """Close the file; one that was not published is gone."""
        self.file.close()
        if self._name is not None:
            self._name.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder for one build; create it, and remove it again if nothing came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        _remove_drafts(folder)
        yield
    finally:
        os.close(handle)
        with suppress(OSError):
            folder.rmdir()  # succeeds only if empty


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        msg = f"{folder}: another build is writing this master; wait for it, or choose another path"
        raise MasterError(msg) from None


def _remove_drafts(folder: Path) -> None:
    for left in folder.glob(f"{_PREFIX}*"):
        left.unlink(missing_ok=True)
