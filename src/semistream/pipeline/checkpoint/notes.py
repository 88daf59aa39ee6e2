"""Small files in a checkpoint's folder, each written once by whoever comes first."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlparse
from uuid import uuid4

from semistream.master.files.drafts import Draft, make_folder, sync_folder
from semistream.spark.cluster.executors import context_of
from semistream.spark.storage import StorageError, children, forget, located, moved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LocalNotes", "Notes", "RemoteNotes", "notes_in"]

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""What `link` fails with on a file system that has no hard links."""


class Notes(Protocol):
    """The notes in one folder."""

    def read(self, name: str) -> str | None:
        """Return the text of a note, None if there is none."""

    def write_first(self, name: str, text: str) -> str:
        """Write a note durably unless it is there; return the text that is there now."""

    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""

    def names(self) -> list[str]:
        """Return the names of all files in the folder, hidden ones left out."""


def notes_in(path: str, spark: SparkSession) -> Notes:
    """Return the notes in a folder, wherever Spark has it."""
    if _scheme(path, spark) != "file":
        return RemoteNotes(path, spark)
    url = urlparse(path)
    return LocalNotes(Path(unquote(url.path) if url.scheme else path))


def _scheme(path: str, spark: SparkSession) -> str:
    """Name the file system in which Spark has a path: one without a scheme is in its default."""
    if context_of(spark) is None:  # Spark Connect, whose server does not tell
        return urlparse(path).scheme or "file"
    files, _ = located(spark, path)
    return str(files.getUri().getScheme())


class LocalNotes:
    """Notes in a file system of this machine: whole or not there, also after a power cut."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> str | None:
        """Return the text of a note, None if there is none."""
        try:
            return (self._path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def write_first(self, name: str, text: str) -> str:
        """Write a note durably unless it is there; return the text that is there now."""
        make_folder(self._path, parents=True)
        with Draft(self._path, text.encode()) as draft:
            draft.sync()
            try:
                draft.publish_first(name)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if self.read(name) is None:
                    draft.publish(name)
        sync_folder(self._path)
        return self.read(name) or ""

    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""
        (self._path / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files in the folder, hidden ones left out."""
        there = self._path.iterdir() if self._path.is_dir() else ()
        return [path.name for path in there if not path.name.startswith(".")]


class RemoteNotes:
    """Notes in a file system that Spark knows: HDFS, an object store.

    A note is written first and renamed then. HDFS refuses to rename onto a file that is there; an
    object store does not, so of two writers at the same moment the last one wins there.
    """

    def __init__(self, path: str, spark: SparkSession) -> None:
        self._path, self._spark = path, spark

    def read(self, name: str) -> str | None:
        """Return the text of a note, None if there is none."""
        files, note = located(self._spark, self._path, name)
        if not files.exists(note):
            return None
        stream = files.open(note)
        try:
            jvm: Any = self._spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_first(self, name: str, text: str) -> str:
        """Write a note durably unless it is there; return the text that is there now."""
        part = f".{name}.{uuid4().hex}"
        files, at = located(self._spark, self._path, part)
        stream = files.create(at, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if not moved(self._spark, f"{self._path}/{part}", f"{self._path}/{name}"):
            forget(self._spark, f"{self._path}/{part}")
        found = self.read(name)
        if found is None:
            msg = f"{self._path}/{name} cannot be written: its draft could not be renamed"
            raise StorageError(msg)
        return found

    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""
        forget(self._spark, f"{self._path}/{name}")

    def names(self) -> list[str]:
        """Return the names of all files in the folder, hidden ones left out."""
        names = children(self._spark, self._path)
        return [name for name in names if not name.startswith(".")]
