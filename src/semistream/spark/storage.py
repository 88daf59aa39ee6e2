"""Files wherever Spark has them: on this machine, in HDFS, in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.errors import SemistreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StorageError", "delete", "delete_old", "file_sizes", "hadoop_path", "list_names"]
__all__ += ["publish_folder", "rename"]

_OLD = 7 * 86_400_000  # milliseconds; what is younger may be in use
_ATTEMPTS = 10  # at renaming: each fails only if another writer came between
_RENAME_WHOLE = {"file", "hdfs", "viewfs"}
"""File systems in which a folder is renamed at once, or not at all."""
_WHOLE = "_semistream_whole"  # readers skip such names


class StorageError(SemistreamError, OSError):
    """A file operation failed, or files are not those that were written."""


def hadoop_path(spark: SparkSession, path: str, *parts: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a path, and the path, or one below it, as Hadoop's object."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    at = jvm.org.apache.hadoop.fs.Path(path)
    files = at.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    for part in parts:
        at = jvm.org.apache.hadoop.fs.Path(at, part)
    return files, at


def rename(spark: SparkSession, old: str, new: str) -> bool:
    """Rename a file or folder unless the new name is taken; return whether it was renamed."""
    files, at = hadoop_path(spark, old)
    _, to = hadoop_path(spark, new)
    # Some file systems would put a folder into one that is there.
    return bool(files.exists(at) and not files.exists(to) and files.rename(at, to))


def publish_folder(spark: SparkSession, draft: str, path: str) -> None:
    """Rename a batch's folder to its place, unless that batch is there already.

    Whoever wrote it wrote the same rows, and may have committed them: it stays. Where a file
    system renames a folder file by file, a mark tells a whole one from a part, which is replaced.
    """
    files, mark = hadoop_path(spark, path, _WHOLE)
    marked = files.getUri().getScheme() not in _RENAME_WHOLE
    for attempt in range(_ATTEMPTS):
        if rename(spark, draft, path):
            if marked:
                files.create(mark, True).close()
            return
        if files.exists(mark if marked else mark.getParent()):
            return
        # In its place another's may be by the time that all its files are deleted.
        aside = f"{draft}-{attempt}"
        rename(spark, path, aside)
        delete(spark, aside)
    msg = f"{draft} cannot be renamed {path}"
    raise StorageError(msg)


def _list(spark: SparkSession, folder: str) -> list[Any]:
    files, at = hadoop_path(spark, folder)
    return list(files.listStatus(at)) if files.exists(at) else []


def list_names(spark: SparkSession, folder: str) -> list[str]:
    """Return the names of what is in a folder; none if it is not there."""
    return [str(status.getPath().getName()) for status in _list(spark, folder)]


def file_sizes(spark: SparkSession, folder: str) -> dict[str, int]:
    """Return the sizes of the files in a folder that readers see, by name."""
    sizes = {str(each.getPath().getName()): int(each.getLen()) for each in _list(spark, folder)}
    return {name: size for name, size in sizes.items() if name[0] not in "._"}


def delete(spark: SparkSession, path: str) -> None:
    """Delete a file or folder, if it is there."""
    files, at = hadoop_path(spark, path)
    files.delete(at, True)


def delete_old(spark: SparkSession, folder: str, keep: str = "") -> None:
    """Delete what is in a folder and so old that its writer was killed; not ``keep``."""
    files, _ = hadoop_path(spark, folder)
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    limit = jvm.System.currentTimeMillis() - _OLD
    for each in _list(spark, folder):
        if each.getModificationTime() < limit and each.getPath().getName() != keep:
            files.delete(each.getPath(), True)
