"""The user's cache folder: a profile, downloaded jars and a home for Java."""

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
    """Return whether no one else can replace what is in a folder."""
    facts = folder.stat()
    closed = not facts.st_mode & 0o022 or facts.st_mode & stat.S_ISVTX
    return bool(closed) and facts.st_uid in {os.getuid(), 0}


def is_safe(path: Path, owners: tuple[int, ...] = ()) -> bool:
    """Return whether only we, or one of these users, own and can write a file or folder.

    A link is not safe: its target may change.

    Examples
    --------
    >>> is_safe(Path("/no/such/file"))
    False
    """
    try:
        facts = path.lstat()
    except OSError:
        return False
    plain = stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)
    return plain and facts.st_uid in {os.getuid(), *owners} and not facts.st_mode & 0o022
