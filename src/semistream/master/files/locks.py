"""Lock files in a master's folder: who builds, who pins, who removes.

They are files, not folders: network file systems lock those across hosts, if opened for writing.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from semistream.errors import MasterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["open_lock", "wait_for_lock"]

log = logging.getLogger(__name__)

_WARN = 5.0  # seconds; a lock is held for a fraction of one
_GIVE_UP = 600.0  # a holder that was stopped, or means harm, never lets go
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # seconds of back-off


def open_lock(path: Path) -> int:
    """Open a lock file for writing, created if there is none; return its descriptor.

    Whoever may write to the folder may put a link there. So links are not followed, anything but a
    plain file with one name is refused, and the mode is set only of a file that was created here.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _open_existing(path, flags)
    _share(handle, path.parent)
    return handle


def _open_existing(path: Path, flags: int) -> int:
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise
        raise _misfit(path) from error
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(handle)
        raise _misfit(path)
    return handle


def _misfit(path: Path) -> MasterError:
    return MasterError(
        f"{path} is no lock file of this package but a link, a folder, a device, or a file with "
        "several names; find out who put it there, and remove it"
    )


def _share(handle: int, folder: Path) -> None:
    """Allow those to lock who may write to the folder, whatever the umask is, and no one else."""
    of = folder.stat()
    with suppress(OSError):  # not in that group
        os.fchown(handle, -1, of.st_gid)
    with suppress(OSError):  # not root, who leaves the lock to the folder's owner
        os.fchown(handle, of.st_uid, -1)
    group, others = 0o060 if of.st_mode & stat.S_IWGRP else 0, 0o006 if of.st_mode & 0o002 else 0
    with suppress(OSError):  # a file system without modes
        os.fchmod(handle, 0o600 | group | others)


def wait_for_lock(
    handle: int,
    how: int,
    path: Path,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Take a lock, ``LOCK_SH`` or ``LOCK_EX``; warn after seconds, give up after minutes."""
    start, pause, warned = clock(), _FIRST_PAUSE, False
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = clock() - start
        else:
            return
        if waited >= _GIVE_UP:
            msg = (
                f"{path}: another process has held this lock for {waited:.0f} s; find it with "
                f"'fuser {path}' or 'lslocks', and end it"
            )
            raise MasterError(msg)
        if waited >= _WARN and not warned:
            warned = True
            log.warning(
                "%s: waiting for a lock that another process holds; 'fuser %s' or 'lslocks' tells "
                "which. An error follows after %.0f s",
                path,
                path,
                _GIVE_UP,
            )
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
