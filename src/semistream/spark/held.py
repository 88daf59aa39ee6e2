"""A batch that is written down before it is parted.

Where a master has no snapshots, as a database, a replayed batch may find rows that it lacked at
first: what was written to one table would not fit what is written to the other. So what was found
is kept until both have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.spark.storage import forget, located

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["held", "is_held"]

_WHOLE = "_SUCCESS"  # Spark's own sign that all tasks of a job have written
_MARKED = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}  # clusters may say no


def is_held(spark: SparkSession, folder: str, number: int) -> bool:
    """Tell whether a batch was written down, all of it."""
    files, whole = located(spark, f"{folder}/{number}", _WHOLE)
    return bool(files.exists(whole))


def held(batch: DataFrame, folder: str, number: int) -> DataFrame:
    """Give a batch as it was when it was first computed; those before it are forgotten.

    Parameters
    ----------
    batch
        What is computed now, if it is not there yet.
    folder
        Where batches are kept, as Parquet.
    number
        The batch's; a replay has the same.
    """
    spark, path = batch.sparkSession, f"{folder}/{number}"
    if not is_held(spark, folder, number):
        batch.write.options(**_MARKED).mode("overwrite").parquet(path)
    forget(spark, f"{folder}/{number - 1}")
    return spark.read.schema(batch.schema).parquet(path)
