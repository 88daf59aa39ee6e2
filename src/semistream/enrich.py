"""`enrich`: the join on a Spark DataFrame; `split` and `watch`: its writer and its metrics."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from semistream.errors import SemistreamError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from semistream.master import Master
    from semistream.missing import Missing
    from semistream.spark.watch import BatchMetrics
    from semistream.spec import On

__all__ = ["enrich", "split", "watch"]


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
    localize: bool | str = False,
    read: str = "mapped",
    name: str | None = None,
    tasks: int | None = None,
    check: bool = True,
    on_missing: Missing | None = None,
    status: str | None = None,
    **options: Any,  # noqa: ANN401
) -> DataFrame:
    """Join a DataFrame, streaming or not, with a master table, within a budget of bytes.

    Gives an ordinary DataFrame: the stream's columns, then the master's without its key. Nothing
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
        ``"mapped"`` or ``"direct"``: see `open_master`.
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
        from semistream.spark.arguments import check_frame  # noqa: PLC0415 - an extra
        from semistream.spark.enrichment import Wish, enriched  # noqa: PLC0415 - an extra
    check_frame("df", df)
    wish = Wish(
        on=on,
        how=how,
        memory=memory,
        algorithm=algorithm,
        select=select,
        prefix=prefix,
        partition=partition,
        transfer=transfer,
        localize=localize,
        read=read,
        name=name,
        tasks=tasks,
        check=check,
        status=status,
        on_missing=on_missing,
        options=options,
    )
    return enriched(df, master, wish)


def watch(
    spark: SparkSession,
    each: Callable[[BatchMetrics], None] | None = None,
    *,
    prometheus: int | None = None,
    address: str = "127.0.0.1",
) -> None:
    """Have what enrichments did in every micro-batch given to a function, or to Prometheus.

    It is in the log anyway, in one line a batch (logger ``semistream.spark.watch``, INFO), and
    counts of rows are among the observed metrics of ``query.lastProgress``.

    Parameters
    ----------
    spark
        The session; Spark Connect has no way for workers to report to its client.
    each
        Called with a `semistream.spark.watch.BatchMetrics`: rows, matches, absents, hits, pages and
        bytes read, memory by component; in the thread in which Spark tells of progress.
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
        from semistream.spark.arguments import check_watch  # noqa: PLC0415 - an extra
        from semistream.spark.watch import add_reader  # noqa: PLC0415 - an extra
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
        from semistream.spark.arguments import check_frame  # noqa: PLC0415 - an extra
        from semistream.spark.split import split_once  # noqa: PLC0415 - an extra
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
