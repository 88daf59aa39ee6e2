"""A batch that is written down before it is parted.

Where a master has no snapshots, as a database, a replayed batch may find rows that it lacked at
first: what was written to one table would not fit what is written to the other. So what was found
is kept until both have it. Whoever writes a batch down first decides it: a driver that was thought
dead and comes back reads what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from semistream.spark.storage import StorageError, children, forget, located, moved, sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["held", "is_held"]

_WHOLE = "_SUCCESS"  # Spark's own sign that all tasks of a job have written
_MARKED = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}  # clusters may say no
_DRAFTS = ".drafts"


def is_held(spark: SparkSession, folder: str, name: str) -> bool:
    """Return whether a batch was written down, all of it."""
    files, whole = located(spark, f"{folder}/{name}", _WHOLE)
    return bool(files.exists(whole))


def held(batch: DataFrame, folder: str, name: str) -> DataFrame:
    """Return a batch as it was when it was first computed; those before it are forgotten.

    Parameters
    ----------
    batch
        What is computed now, if it is not there yet.
    folder
        Where batches are kept, as Parquet.
    name
        The batch's, beginning with its number; a replay has the same.
    """
    spark = batch.sparkSession
    if not is_held(spark, folder, name):
        _write_down(batch, folder, name)
    number = _number(name)
    for old in children(spark, folder):
        if not old.startswith(".") and _number(old) < number:
            forget(spark, f"{folder}/{old}")
    return spark.read.schema(batch.schema).parquet(f"{folder}/{name}")


def _write_down(batch: DataFrame, folder: str, name: str) -> None:
    """Write to a place of its own, and rename that unless another driver came first."""
    spark = batch.sparkSession
    # Hidden, also where a file system puts a folder into one that is there instead of refusing.
    draft = f"{folder}/{_DRAFTS}/.{uuid4().hex}"
    try:
        batch.write.options(**_MARKED).parquet(draft)
        moved(spark, draft, f"{folder}/{name}")
    finally:
        forget(spark, draft)
        sweep(spark, f"{folder}/{_DRAFTS}")
    if not is_held(spark, folder, name):
        msg = f"{folder}/{name} cannot be written: its draft could not be renamed"
        raise StorageError(msg)


def _number(name: str) -> int:
    return int(name.partition("-")[0])
