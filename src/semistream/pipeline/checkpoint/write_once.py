# ruff: noqa: D102 - the protocol documents the methods
"""Small files in a checkpoint's folder, each written once, by the first writer."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlparse
from uuid import uuid4

from semistream.master.files.drafts import Draft, make_folder, sync_folder
from semistream.spark.cluster.executors import context_of
from semistream.spark.storage import StorageError, delete, hadoop_path, list_names, rename

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LocalFiles", "RemoteFiles", "WriteOnceFiles", "files_in"]

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""What `link` fails with on a file system that has no hard links."""


class WriteOnceFiles(Protocol):
    """The files of one folder."""

    def read(self, name: str) -> str | None:
        """Return the text of a file, None if there is none."""

    def write_first(self, name: str, text: str) -> str:
        """Write a file durably unless it is there; return the text that is there now."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def names(self) -> list[str]:
        """Return the names of all files in the folder, without hidden ones."""


def files_in(path: str, spark: SparkSession) -> WriteOnceFiles:
    """Return the files in a folder, wherever Spark has it."""
    url = urlparse(path)
    scheme = url.scheme or "file"
    if context_of(spark) is not None:  # a path without a scheme is in Spark's default file system
        scheme = str(hadoop_path(spark, path)[0].getUri().getScheme())
    if scheme != "file":
        return RemoteFiles(path, spark)
    return LocalFiles(Path(unquote(url.path) if url.scheme else path))


class LocalFiles:
    """Files in a file system of this machine: whole or not there, also after a power cut."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def write_first(self, name: str, text: str) -> str:
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
        (self._path / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        paths = self._path.iterdir() if self._path.is_dir() else ()
        return [path.name for path in paths if not path.name.startswith(".")]


class RemoteFiles:
    """Files in a file system that Spark knows: HDFS, an object store.

    A file is written as a draft and then renamed. HDFS refuses to rename onto a file that is there;
    an object store does not, so of two writers at the same moment the last one wins there.
    """

    def __init__(self, path: str, spark: SparkSession) -> None:
        self._path, self._spark = path, spark

    def read(self, name: str) -> str | None:
        files, at = hadoop_path(self._spark, self._path, name)
        if not files.exists(at):
            return None
        stream = files.open(at)
        try:
            jvm: Any = self._spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_first(self, name: str, text: str) -> str:
        draft = f".{name}.{uuid4().hex}"
        files, at = hadoop_path(self._spark, self._path, draft)
        stream = files.create(at, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if not rename(self._spark, f"{self._path}/{draft}", f"{self._path}/{name}"):
            delete(self._spark, f"{self._path}/{draft}")
        content = self.read(name)
        if content is None:
            msg = f"{self._path}/{name} cannot be written: its draft could not be renamed"
            raise StorageError(msg)
        return content

    def remove(self, name: str) -> None:
        delete(self._spark, f"{self._path}/{name}")

    def names(self) -> list[str]:
        return [n for n in list_names(self._spark, self._path) if not n.startswith(".")]
