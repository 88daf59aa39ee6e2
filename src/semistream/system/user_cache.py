"""Where the user's profile, fetched jars and a home for Java are kept between runs."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["is_safe", "private_cache", "user_cache"]


def user_cache() -> Path:
    """Return the folder: ``semistream`` in an absolute ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "semistream"


def private_cache(name: str) -> Path | None:
    """Return a folder of the cache that no one else can write to; None where there is none."""
    folder = user_cache() / name
    with suppress(OSError):
        for each in (user_cache(), folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_safe(user_cache()) and is_safe(folder) and _is_sheltered(user_cache().parent):
            return folder
    return None


def _is_sheltered(folder: Path) -> bool:
    """Return whether no one else can rename what is in a folder, and put another in its place."""
    found = folder.stat()
    closed = not found.st_mode & 0o022 or found.st_mode & stat.S_ISVTX
    return bool(closed) and found.st_uid in {os.getuid(), 0}


def is_safe(path: Path, owners: tuple[int, ...] = ()) -> bool:
    """Return whether a file or folder is ours, or one of these users', and no one else can write it.

    A link is not: where it leads may change.

    Examples
    --------
    >>> is_safe(Path("/no/such/file"))
    False
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return plain and found.st_uid in {os.getuid(), *owners} and not found.st_mode & 0o022
