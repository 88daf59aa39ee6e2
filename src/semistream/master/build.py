"""Building a master table: encode keys, sort out of core, cut pages, publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError
from semistream.master.arguments import callback, master_folder, yes_or_no
from semistream.master.files import Draft
from semistream.master.filter import KeyFilter, filter_words
from semistream.master.lake.find import find_table, is_table
from semistream.master.pages import PageWriter
from semistream.master.sort import ExternalSort
from semistream.master.source import Rows, Source, SparkDataFrame
from semistream.master.store import Master, open_master
from semistream.master.target import Origin, Target, sizes
from semistream.names import listed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["Progress", "build_master", "written"]


@dataclass(frozen=True)
class Progress:
    """How far a build has come."""

    phase: str
    """``"read"``, then ``"write"``."""
    rows: int
    total: int | None
    """Rows in all, where they are known: not while a RecordBatchReader is read."""


def build_master(  # noqa: PLR0913 - a build has these parts; all but three have defaults
    source: Source,
    path: str | os.PathLike[str],
    key: str | Sequence[str],
    *,
    version: int | None = None,
    columns: Sequence[str] | None = None,
    page_bytes: int | str = "128KB",
    filter: bool = True,  # noqa: A002 - the word users look for
    memory: int | str = "1GB",
    progress: Callable[[Progress], None] | None = None,
) -> Master:
    """Build a master table from rows in any order, in bounded memory, and open it.

    A build that fails or is killed before its manifest takes over leaves the master as it was.
    Rows with a null in their key match nothing and are left out (counted in the statistics).

    Parameters
    ----------
    source
        A pyarrow Table, RecordBatch or RecordBatchReader; the path or URI of a Delta table, of a
        Parquet file or a folder of them, or of an Iceberg table's metadata file;
        ``"iceberg://<catalog>/<namespace>.<table>"``; the table that ``deltalake`` or ``pyiceberg``
        loaded, which may have credentials; or a Spark DataFrame that is not streaming.
    path
        The folder to write, replaced atomically if a master is there. For a Spark DataFrame it is
        on a file system that the driver and all executors share.
    key
        The join key: a column's name, or several.
    version
        The version of a Delta table, or the id of an Iceberg table's snapshot; the newest by
        default. `sync_master` follows the table from there.
    columns
        The columns of a table of files to take; all by default.
    page_bytes
        The size of a page; larger ones suit sequential reads, smaller ones random reads. Only a
        page of a single row may be larger.
    filter
        Whether to store a Bloom filter, which answers absent keys without a page.
    memory
        What the build may use, beside the batches that a RecordBatchReader gives. For a Spark
        DataFrame: what the Python worker of each task may use, of which it takes a few pages, and
        the driver for the filter, which is at most a quarter. Spark sorts in its own memory.
    progress
        Called now and then with a `Progress`; for a Spark DataFrame, when a phase or a part ends.

    Notes
    -----
    A Spark DataFrame is built as a Spark job: its rows are divided into
    ``spark.sql.shuffle.partitions`` ranges of keys (fewer if adaptive execution finds them small),
    sorted and written in parallel; then the driver puts the files together. Spark reads the source
    twice, first to find the ranges: ``persist`` it if that is dear.

    The rows and statistics are those of a build by one process, but each range ends with a page,
    and rows with the same key come in no particular order. So the `Master.snapshot` of the same
    rows may be another one, except for a single range and unique keys.

    Types are Spark's own in Arrow. A timestamp is in microseconds, UTC, whatever time zone the
    session has; ``timestamp_ntz`` has no time zone.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> products = pa.table({"product_id": [2, 1], "price": [1.5, 9.0]})
    >>> master = ss.build_master(products, tempfile.mkdtemp(), key="product_id")
    >>> master.rows, master.pages, master.key
    (2, 1, ('product_id',))
    """
    path, report = master_folder(path), callback(progress, "progress")
    with_filter = yes_or_no(filter, "filter")
    names = None if columns is None else listed("columns", columns)
    if not is_table(source) and (version is not None or columns is not None):
        msg = (
            f"version={version} and columns={columns} are for tables of files, not for a "
            f"{type(source).__name__}; choose rows and columns of that itself"
        )
        raise OptionError(msg)
    if isinstance(source, SparkDataFrame):
        from semistream.spark.build import build_from_dataframe  # noqa: PLC0415 - optional

        frame: Any = source
        return build_from_dataframe(frame, path, key, page_bytes, with_filter, memory, report)
    size, room = sizes(page_bytes, memory)
    table = find_table(source, version, names) if is_table(source) else None
    rows = table.rows(room // 16) if table else Rows.of(source)
    target = Target.of(path, rows.reader.schema, key, size)
    origin = Origin(table.note if table else {})
    with target.building():
        _Build(rows, target, origin, room, report).run(with_filter)
    return open_master(target.folder)


def written(progress: Callable[[Progress], None], total: int) -> Callable[[int], None]:
    """Give a function that is told how many more rows were written, and reports it."""
    done = 0

    def passed(rows: int) -> None:
        nonlocal done
        done += rows
        progress(Progress("write", done, total))

    return passed


@dataclass
class _Build:
    """One build: what it reads and where it writes."""

    rows: Rows
    target: Target
    origin: Origin
    memory: int
    progress: Callable[[Progress], None]

    def run(self, with_filter: bool) -> None:
        sort = ExternalSort(self.target.page_schema, self.memory, self.target.folder)
        try:
            null_keys = self._read(sort)
            self._write(sort, with_filter, null_keys)
        finally:
            sort.close()

    def _read(self, sort: ExternalSort) -> int:
        """Encode and sort all rows; give the number of those without a key."""
        read = 0
        for count, batch in self.rows.encoded(self.target.keys, self.memory):
            read += count
            sort.add(batch)
            self.progress(Progress("read", read, self.rows.total))
        return read - sort.rows

    def _write(self, sort: ExternalSort, with_filter: bool, null_keys: int) -> None:
        words = filter_words(sort.rows) if with_filter else 0
        keys = KeyFilter.zeros(KeyFilter.affordable(words, sort.rows, self.memory // 4))
        with Draft(self.target.folder) as pages:
            writer = PageWriter(pages.file, self.target.page_schema, self.target.page_bytes)
            for batch in sort.merged(written(self.progress, sort.rows)):
                codes = writer.add(batch)
                if keys.nbytes:
                    keys.add(codes)
            writer.finish()
            counts = writer.counts(null_keys)
            self.target.publish(pages, writer.index, counts, keys, self.origin)
