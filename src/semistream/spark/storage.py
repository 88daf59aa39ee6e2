"""Files wherever Spark has them: on this machine, in HDFS, in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.errors import SemistreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StorageError", "children", "forget", "located", "moved", "put", "sizes", "sweep"]

_OLD = 7 * 86_400_000  # milliseconds; what is younger may be in use
_ATTEMPTS = 10
_RENAME_WHOLE = {"file", "hdfs", "viewfs"}
"""File systems in which a folder is renamed at once, or not at all."""
_WHOLE = "_semistream_whole"  # readers pass over such names


class StorageError(SemistreamError, OSError):
    """A file system does not do what it is asked to."""


def located(spark: SparkSession, path: str, *parts: str) -> tuple[Any, Any]:
    """Give Hadoop's file system of a path, and the path, or what is in it, as Hadoop has it."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    at = jvm.org.apache.hadoop.fs.Path(path)
    files = at.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    for part in parts:
        at = jvm.org.apache.hadoop.fs.Path(at, part)
    return files, at


def moved(spark: SparkSession, old: str, new: str) -> bool:
    """Give a file or folder another name, if nothing has it; tell whether it has it now."""
    files, at = located(spark, old)
    _, to = located(spark, new)
    # Some file systems would put a folder into one that is there.
    return bool(files.exists(at) and not files.exists(to) and files.rename(at, to))


def put(spark: SparkSession, draft: str, path: str) -> None:
    """Move a batch's folder to its place, unless that batch is there already.

    Whoever wrote it wrote the same rows, and may have committed them: it stays. Where a file
    system renames a folder file by file, a mark tells a whole one from a part, which is replaced.
    """
    files, mark = located(spark, path, _WHOLE)
    marked = files.getUri().getScheme() not in _RENAME_WHOLE
    for attempt in range(_ATTEMPTS):
        if moved(spark, draft, path):
            if marked:
                files.create(mark, True).close()
            return
        if files.exists(mark if marked else mark.getParent()):
            return
        # In its place another's may be by the time that all its files are deleted.
        aside = f"{draft}-{attempt}"
        moved(spark, path, aside)
        forget(spark, aside)
    msg = f"{draft} cannot be renamed {path}"
    raise StorageError(msg)


def children(spark: SparkSession, folder: str) -> list[str]:
    """Return the names of what is in a folder; none if it is not there."""
    files, at = located(spark, folder)
    there = files.listStatus(at) if files.exists(at) else ()
    return [str(status.getPath().getName()) for status in there]


def forget(spark: SparkSession, path: str) -> None:
    """Delete a file or folder, if it is there."""
    files, at = located(spark, path)
    files.delete(at, True)


def sizes(spark: SparkSession, folder: str) -> dict[str, int]:
    """Return the sizes of the files in a folder that readers see, by name."""
    files, at = located(spark, folder)
    there = files.listStatus(at) if files.exists(at) else ()
    found = {str(each.getPath().getName()): int(each.getLen()) for each in there}
    return {name: size for name, size in found.items() if name[0] not in "._"}


def sweep(spark: SparkSession, folder: str, keep: str = "") -> None:
    """Delete what is in a folder and so old that whoever made it was killed; not ``keep``."""
    files, at = located(spark, folder)
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    limit = jvm.System.currentTimeMillis() - _OLD
    for found in files.listStatus(at) if files.exists(at) else ():
        if found.getModificationTime() < limit and found.getPath().getName() != keep:
            files.delete(found.getPath(), True)
