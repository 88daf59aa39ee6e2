"""Folders and files that processes of one user share, with locks that die with their process."""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import xxhash

from semistream.errors import HostFolderError
from semistream.system.user_cache import user_cache

__all__ = [
    "FILES",
    "SLOTS",
    "Handle",
    "boot",
    "boot_seed",
    "default_root",
    "open_folder",
    "own_folder",
    "private_place",
    "reserve",
    "sweep_folder",
]

log = logging.getLogger(__name__)

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, which no one else may enter
_BOOT = Path("/proc/sys/kernel/random/boot_id")
SLOTS = tuple(f"slot-{number}" for number in range(17))
"""The files for generations: one for each of at most 16 shards, and one to write the next in."""
FILES = frozenset({"common", "a", "b", "directory", *SLOTS})
"""The files of a state's folder, also of those that earlier versions have left."""
_TRIES = 200  # of a millisecond each: others hold these locks for microseconds
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def default_root(size: int = 0) -> Path:
    """Return the folder for state on this host: in memory, where the system has room there.

    The environment's ``SEMISTREAM_HOST_DIR`` names another one.

    Examples
    --------
    >>> default_root().is_absolute()
    True
    """
    if chosen := os.environ.get("SEMISTREAM_HOST_DIR"):
        return Path(chosen)
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    if usable:
        space = os.statvfs(_MEMORY)
        usable = space.f_blocks * space.f_frsize > 2 * size  # the same for all, whatever is free
    return private_place("semistream-host", _MEMORY if usable else Path(tempfile.gettempdir()))


def private_place(name: str, shared: Path) -> Path:
    """Return this user's folder in one that all may write to, or in the cache if that is taken.

    Otherwise whoever creates a folder of that name first would stop all joins of this user.
    """
    folder = shared / f"{name}-{os.getuid()}"
    try:
        taken = folder.lstat().st_uid != os.getuid()
    except OSError:
        taken = False
    if not taken:
        return folder
    instead = user_cache() / f"{name}-{platform.node()}"  # homes may be shared by hosts
    _warn_of_another(folder, instead)
    return instead


@cache  # once in a process is enough
def _warn_of_another(folder: Path, instead: Path) -> None:
    log.warning("%s belongs to another user: %s is used instead", folder, instead)


@cache
def boot() -> int:
    """Return a number that changes with each boot.

    Files written before the last reboot may be incomplete.
    """
    return xxhash.xxh3_64_intdigest(_BOOT.read_bytes()) if _BOOT.exists() else 1


@cache
def boot_seed() -> int:
    """Return 128 bits that are the same in all processes until a reboot, and cannot be guessed.

    They seed the hashes of a database's keys, by which processes of a host share rows.
    """
    known = _BOOT.exists()
    return xxhash.xxh3_128_intdigest(_BOOT.read_bytes()) if known else secrets.randbits(128)


class Handle:
    """An open file or folder; its lock goes with it."""

    def __init__(self, path: Path, flags: int = _OPEN) -> None:
        self.number = -1
        self.number, self._owner = os.open(path, flags, 0o600), os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, rather than its parent before a fork."""
        return os.getpid() == self._owner

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self.number).st_size

    def lock(self, alone: bool = False) -> bool:
        """Take the lock if it is free; return whether it was."""
        if not self.is_ours:
            return False  # it would be taken for the process we were forked from, and never end
        try:
            fcntl.flock(self.number, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_for_lock(self, alone: bool = False) -> bool:
        """Take the lock, unless another keeps it for long; return whether that succeeded."""
        for _ in range(_TRIES):
            if self.lock(alone):
                return True
            time.sleep(0.001)
        return False

    def unlock(self) -> None:
        """Release the lock; mappings of the file would keep it when this is closed."""
        if self.is_ours:  # else the lock is that of the process we were forked from
            fcntl.flock(self.number, fcntl.LOCK_UN)

    def reserve(self, size: int) -> bool:
        """Allocate so many bytes or more; return whether the file system has them.

        A mapped byte that the file system cannot keep would end the process (SIGBUS).
        """
        try:
            os.posix_fallocate(self.number, 0, size)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unlock and close."""
        if self.number >= 0:
            self.unlock()
            os.close(self.number)
        self.number = -1

    __del__ = close


class Folder(Handle):
    """The open folder of a state; its time is that of the last use."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self) -> None:
        """Unlock and close; a join may have lived for days since it opened this."""
        if self.number >= 0:
            os.utime(self.number)
        super().close()

    __del__ = close


def reserve(file: Handle, path: Path, size: int) -> None:
    """Allocate a state's file, if need be by removing states that no one uses now."""
    if not file.reserve(size):
        sweep_folder(path.parent.parent, days=0)
        if not file.reserve(size):
            msg = (
                f"{path}: no room for {size:,} bytes; name another folder in SEMISTREAM_HOST_DIR, "
                "or in HostShare(root=…)"
            )
            raise HostFolderError(msg)


def own_folder(folder: Path) -> Path:
    """Create a folder that no one else may enter; refuse one that others may."""
    with suppress(FileExistsError):  # no folder: refused below
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        msg = (
            f"{folder} is not a folder of this user alone (user {os.getuid()}, mode 0700), so what "
            "is in it cannot be trusted: remove it, or name another in SEMISTREAM_HOST_DIR or "
            "HostShare(root=…)"
        )
        raise HostFolderError(msg)
    return folder


def open_folder(root: Path, name: str) -> tuple[Path, Folder]:
    """Open the folder of one state, created if need be; it is not swept while it is open."""
    folder = own_folder(root) / name
    for _ in range(_TRIES):
        if not folder.exists():
            sweep_folder(root)
        handle = Folder(own_folder(folder))
        if handle.wait_for_lock() and _is_still(folder, handle):
            os.utime(handle.number)
            return folder, handle
    msg = f"{folder} is being removed again and again; name another folder in HostShare(root=…)"
    raise HostFolderError(msg)


def _is_still(folder: Path, handle: Handle) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(handle.number))
    except FileNotFoundError:
        return False


def sweep_folder(root: str | os.PathLike[str], days: float = 1.0, kin: str = "") -> int:
    """Remove states that no process has used for so many days; return how many.

    Only names that begin with ``kin`` are considered.

    Examples
    --------
    >>> sweep_folder("/no/such/folder")
    0
    """
    if not Path(root).is_dir():
        return 0
    folders = [folder for folder in own_folder(Path(root)).iterdir() if folder.name.startswith(kin)]
    return sum(_swept(folder, days) for folder in folders)


def _swept(folder: Path, days: float) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        handle = Handle(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        idle = time.time() - os.fstat(handle.number).st_mtime
        if idle < days * 86_400 or not handle.lock(alone=True):
            return False
        if not {file.name for file in folder.iterdir()} <= FILES:
            return False  # someone else's
        shutil.rmtree(folder)
    except FileNotFoundError:  # someone else was faster
        return False
    return True
