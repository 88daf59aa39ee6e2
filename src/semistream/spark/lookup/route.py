"""PCSRJ's router for any number of tasks: rows go where the page of their key is read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType

from semistream.arrow.types import cast
from semistream.names import unused
from semistream.spark.lookup.transfer import arrow_column
from semistream.spark.lookup.worker import open_job_master
from semistream.spark.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from semistream.spark.lookup.job import Job

__all__ = ["partitions_of", "route_rows"]

_COMPARE = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_HOT = 8  # a page with more than 1/8 of a partition's fair share could unbalance it
_FEW_KEYS = (1 << 16) - 1  # buckets of keys: many beside any number of tasks
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads neighbours


def route_rows(df: DataFrame, job: Job, partitions: int) -> DataFrame:
    """Return the same rows, those of a page in one partition, but for hot pages.

    Where a row of a hot page goes depends on the rows beside it. If an executor is lost, and a task
    that is run again has its rows in another order (because they came out of a shuffle), they are
    divided otherwise; Spark then has to run again what has read the first division. It does, where
    it is told to compare checksums. The same helps where a master that cannot be pinned was built
    anew meanwhile.
    """
    for setting in _COMPARE:
        with suppress(PySparkException):  # a Spark that does not know it
            if df.sparkSession.conf.get(setting) == "false":
                df.sparkSession.conf.set(setting, "true")

    def targets(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        master, fields = open_job_master(job), [job.stream.field(name) for name in job.on]
        # A database has no pages: then those of a few keys are as good. Hosts have seeds of their
        # own for it, and a task that is run again on another one must divide rows as before.
        live = master.is_live
        coding = replace(master.keys, seed=0) if live else master.keys
        for keys in batches:
            typed = [cast(key, f.type) for key, f in zip(keys, fields, strict=True)]
            codes = coding.encode(typed).values
            pages = (codes & _FEW_KEYS).astype(np.int32) if live else master.page_of(codes)
            yield pa.array(partitions_of(pages, partitions))

    column = arrow_column(targets, IntegerType(), [df[quote(name)] for name in job.on])
    target = unused("__partition", df.columns)
    return df.withColumn(target, column).repartitionById(partitions, target).drop(target)


def partitions_of(pages: npt.NDArray[np.int32], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each row of a batch, from the page of its key.

    A page goes to the same partition always, in every batch and every task. Rows of hot pages, that
    is, of those with more than an eighth of a fair share of this batch, are dealt out in turn: no
    task is left with a hot key, and rows that are that hot are found in a cache wherever they come.

    Examples
    --------
    >>> partitions_of(np.zeros(8, np.int32), 4).tolist()
    [0, 1, 2, 3, 0, 1, 2, 3]
    """
    counts = np.bincount(pages + 1, minlength=1)
    hot = counts[pages + 1] > len(pages) / (_HOT * partitions)
    mixed = (pages.astype(np.uint64) * _MIX) >> np.uint64(33)
    return (np.where(hot, np.arange(len(pages)), mixed.view(np.int64)) % partitions).astype(
        np.int32
    )
