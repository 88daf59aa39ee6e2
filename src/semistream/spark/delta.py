"""Delta tables by their paths, and the micro-batches that change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Once", "properties_of", "sql_name"]


@dataclass(frozen=True)
class Once:
    """A micro-batch: what it writes, it writes under its number, and so once."""

    query: str
    """Spark's id of it."""
    number: int
    millis: int = 0
    """The batch's own time, in milliseconds since 1970."""

    @classmethod
    def of(cls, batch: DataFrame, number: int, millis: int = 0) -> Once:
        """Name the batch in whose ``foreachBatch`` this is called."""
        context = batch.sparkSession.sparkContext
        return cls(context.getLocalProperty("sql.streaming.queryId") or "", number, millis)


def sql_name(path: str) -> str:
    """Name the table at a path in SQL.

    Examples
    --------
    >>> print(sql_name("warehouse/it`s"))
    delta.`warehouse/it``s`
    """
    return "delta.`{}`".format(path.replace("`", "``"))


def properties_of(spark: SparkSession, path: str) -> Mapping[str, str] | None:
    """Give the properties of the Delta table at a path; None if there is no table."""
    try:
        [detail] = spark.sql(f"DESCRIBE DETAIL {sql_name(path)}").collect()
    except AnalysisException as error:
        if error.getCondition() in _NO_TABLE:
            return None
        raise
    properties: Mapping[str, str] = detail["properties"]
    return properties


_NO_TABLE = {"DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"}
