"""Zip archives on the path of a worker, which need not be read again at every task.

At the start of every task Spark has Python forget what it knows of the places that modules come
from, for there may be new ones. For a zip archive that means, in Python 3.11, that its whole list
of files is read and taken apart again: for Spark's own archive, of more than a thousand files, that
took more of a small micro-batch than the join.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from zipimport import zipimporter

__all__ = ["keep_archives"]


class _Archive(zipimporter):
    """Reads its list of files again only if the archive is another one by now."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._seen = _stamp(self.archive)

    def invalidate_caches(self) -> None:
        """Forget the list of files, if it has changed."""
        now = _stamp(self.archive)
        if now != self._seen:
            super().invalidate_caches()
            self._seen = now


def _stamp(path: str) -> tuple[int, int, int]:
    with suppress(OSError):
        status = os.stat(path)  # noqa: PTH116 - hot: at every task
        return status.st_ino, status.st_size, status.st_mtime_ns
    return 0, 0, 0


def keep_archives() -> None:
    """Replace the importers of zip archives by ones that re-read only archives that changed.

    Examples
    --------
    >>> import tempfile, zipfile
    >>> archive = tempfile.mkdtemp() + "/modules.zip"
    >>> with zipfile.ZipFile(archive, "w") as file:
    ...     file.writestr("one.py", "")
    >>> sys.path_importer_cache[archive] = zipimporter(archive)
    >>> keep_archives()
    >>> finder = sys.path_importer_cache[archive]
    >>> finder.invalidate_caches()
    >>> with zipfile.ZipFile(archive, "a") as file:
    ...     file.writestr("two.py", "")
    >>> finder.invalidate_caches()
    >>> finder.find_spec("two") is not None
    True
    >>> _ = sys.path_importer_cache.pop(archive)
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            with suppress(ImportError):  # it is gone; whoever asks for it is told so
                sys.path_importer_cache[path] = _Archive(path)
