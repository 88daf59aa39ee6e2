"""The public functions that may need Spark, which each imports when it is called."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError, SemistreamError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from semistream.master import FileMaster, Master
    from semistream.master.build.build import Progress
    from semistream.master.source import Source
    from semistream.missing import Missing
    from semistream.spark.metrics.report import BatchMetrics
    from semistream.spec import On

# Spark is an extra, and a join needs no builder.
# ruff: noqa: PLC0415

__all__ = ["build_master", "enrich", "split", "watch"]


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
) -> FileMaster:
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
        The size of a page; larger ones suit sequential reads, smaller ones random reads and small
        budgets. ``"auto"`` measures the disk for a second and takes what it reads in the time
        of a read, 8 to 128 KB: best for a master that is larger than memory. Only a page of a
        single row may be larger.
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
    from semistream.master.arguments import callback, master_folder, yes_or_no
    from semistream.master.build.build import build_from_rows
    from semistream.master.lake.kinds import is_table
    from semistream.master.source import SparkDataFrame
    from semistream.names import listed

    path, report = master_folder(path), callback(progress, "progress")
    with_filter = yes_or_no(filter, "filter")
    columns = None if columns is None else listed("columns", columns)
    if not is_table(source) and (version is not None or columns is not None):
        msg = (
            f"version={version} and columns={columns} are for tables of files, not for a "
            f"{type(source).__name__}; choose rows and columns of that itself"
        )
        raise OptionError(msg)
    if isinstance(source, SparkDataFrame):
        from semistream.spark.build import build_from_dataframe

        frame: Any = source
        return build_from_dataframe(frame, path, key, page_bytes, with_filter, memory, report)
    return build_from_rows(
        source,
        path,
        key,
        version=version,
        columns=columns,
        page_bytes=page_bytes,
        with_filter=with_filter,
        memory=memory,
        progress=report,
    )


def enrich(  # noqa: PLR0913 - a join has these parts; all but two have defaults
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    *,
    on: On,
    how: str = "inner",
    memory: int | str = "256MB",
    algorithm: str = "adaptive",
    select: Sequence[str] | None = None,
    prefix: str = "",
    partition: str = "auto",
    transfer: str = "auto",
    localize: bool | int | str = False,
    read: str = "auto",
    name: str | None = None,
    tasks: int | None = None,
    check: bool = True,
    on_missing: Missing | None = None,
    status: str | None = None,
    **options: Any,  # noqa: ANN401
) -> DataFrame:
    """Join a DataFrame, streaming or not, with a master table, within a budget of bytes.

    Returns an ordinary DataFrame: the stream's columns, then the master's without its key. Nothing
    waits across micro-batches, so that output is as exactly-once as its sink.

    Parameters
    ----------
    df
        The stream, or a batch of it: the same line serves a backfill.
    master
        The master table: its path, which all executors share, or an opened one. A stream takes
        new snapshots up between micro-batches; one opened at a ``snapshot=`` stays with it.
    on
        The key: a column that both sides have, a list of them, or a mapping from the stream's
        names to the master's.
    how
        ``"inner"``, ``"left"``, ``"semi"`` or ``"anti"``; Spark's synonyms are known.
    memory
        The budget of an executor, divided among the tasks that it runs at once.
    algorithm
        One of `algorithms`.
    select
        The master columns that come out; no other is read. All but the key if not given.
    prefix
        Put before the names of the master's columns.
    partition
        ``"key"`` routes rows so that a page is read by one task, ``"none"`` joins them where they
        are, ``"auto"`` chooses, and says why in the log.
    transfer
        What passes through Python: ``"none"``, for Spark's JVM looks keys up in mapped pages;
        ``"keys"`` alone, where a row has one answer; or ``"rows"``. ``"auto"`` chooses.
    localize
        Whether hosts keep a copy on their own disk, as object stores need it; a size such as
        ``"50GB"`` limits the copies of all masters on a host (True is 100 GB).
    read
        ``"mapped"`` or ``"direct"``: see `open_master`. ``"auto"`` maps pages that have room in the
        memory of all hosts; others are read directly, so that they do not displace what has.
    name
        Names the enrichment in metrics; the name of the master's folder if not given.
    tasks
        How many tasks an executor runs at once; asked of Spark if not given.
    check
        Whether to look, in a small job, if every executor can read the master.
    on_missing
        What becomes of the rows of a left join that have no master row: ``"null"`` (they come out
        with nulls, the default), a mapping from master columns to default values, ``"drop"``,
        ``"error"`` (the task fails and names keys), ``"quarantine"`` or ``"wait"`` (they come out
        marked, and the writer parts them from the others: `split`). All are counted.
    status
        For a left join: the name of a last column that says ``"matched"``, ``"absent"`` (no master
        row has this key) or ``"null key"``. With ``"quarantine"`` and ``"wait"`` there is always
        one; it is ``"_status"`` if no name is given.
    **options
        Options of the algorithm.

    Examples
    --------
    ::

        sales = spark.readStream.schema("sale long, product_id long").parquet("sales")
        enriched = ss.enrich(sales, "products.master", on="product_id", how="left", memory="256MB")
        enriched.writeStream.option("checkpointLocation", "checkpoint").start("warehouse")
    """
    with _pyspark("enrich"):
        from semistream.options import EnrichOptions
        from semistream.spark.enrich.arguments import check_frame
        from semistream.spark.enrich.enrichment import enrich_frame
        from semistream.units import parse_bytes
    check_frame("df", df)
    return enrich_frame(
        df,
        master,
        EnrichOptions(
            on=on,
            how=how,
            memory=parse_bytes(memory),
            algorithm=algorithm,
            select=select,
            prefix=prefix,
            partition=partition,
            transfer=transfer,
            localize=localize,
            read=read,
            name=name or "",
            tasks=tasks,
            check=check,
            on_missing=on_missing,
            status=status or "",
            options=options,
        ),
    )


def watch(
    spark: SparkSession,
    each: Callable[[BatchMetrics], None] | None = None,
    *,
    prometheus: int | None = None,
    address: str = "127.0.0.1",
) -> None:
    """Have what enrichments did in every micro-batch given to a function, or to Prometheus.

    It is in the log anyway, in one line a batch (logger ``semistream.spark.metrics.listener``,
    INFO), and counts of rows are among the observed metrics of ``query.lastProgress``.

    Parameters
    ----------
    spark
        The session; Spark Connect has no way for workers to report to its client.
    each
        Called with a `semistream.spark.metrics.report.BatchMetrics`: rows, matches, absents, hits,
        pages and bytes read, memory by component; in the thread in which Spark tells of progress.
    prometheus
        A port on which metrics are served, unencrypted and to anyone who can reach it; 0 finds a
        free one, which the log tells. Needs the extra ``prometheus``.
    address
        The interface on which ``prometheus`` listens; for a Prometheus on another machine one that
        it can reach, or ``"0.0.0.0"`` for all of them.

    Examples
    --------
    ::

        ss.watch(spark, print)
        ss.watch(spark, prometheus=9095)
    """
    with _pyspark("watch"):
        from semistream.spark.enrich.arguments import check_watch
        from semistream.spark.metrics.listener import add_reader
    check_watch(spark, each, prometheus, address)
    add_reader(spark, each, prometheus, address)


@contextmanager
def split(batch: DataFrame, status: str | None = None) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Part a batch's rows that have a master row from those that have none; for a foreachBatch.

    The batch is computed once, kept as long as the block runs, and counted once in the metrics.

    Parameters
    ----------
    batch
        A batch of a stream that was enriched with ``on_missing="quarantine"`` or ``"wait"``, or
        with a ``status`` column.
    status
        The status column, where it is not to be found by itself.

    Returns
    -------
    context manager
        Gives two DataFrames: the rows with all their master rows, without status columns; and the
        others, with ``_reason`` (``"absent"`` or ``"null key"``) and ``_enrichment``, the first
        that found no row for them.

    Examples
    --------
    Both tables have every batch once, for a batch that comes again has the same number::

        def write(batch, number):
            once = {"txnAppId": "sales", "txnVersion": number}
            with ss.split(batch) as (good, missing):
                good.write.format("delta").options(**once).mode("append").save("sales")
                missing.write.format("delta").options(**once).mode("append").save("quarantine")


        sales = ss.enrich(stream, master, on="product_id", how="left", on_missing="quarantine")
        sales.writeStream.foreachBatch(write).option("checkpointLocation", "checkpoint").start()
    """
    with _pyspark("split"):
        from semistream.pipeline.late.split import split_once
        from semistream.spark.enrich.arguments import check_frame
    check_frame("batch", batch)
    with split_once(batch, status) as parts:
        yield parts


@contextmanager
def _pyspark(what: str) -> Iterator[None]:
    """Say what to install where pyspark is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark", "pandas"}:
            raise
        msg = f"{what} needs {error.name}: pip install 'semistream[spark]'"
        raise SemistreamError(msg) from None
