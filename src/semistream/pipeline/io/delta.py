"""Delta tables by their paths, and the micro-batches that change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Table", "Version", "limit_log_tasks", "properties_of", "sql_name", "write_delta"]

_NO_TABLE = {"DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"}
_LOG_TASKS = "spark.databricks.delta.snapshotPartitions"
_DELTAS_OWN = 50  # tasks that Delta takes by itself


class Version(NamedTuple):
    """A version of a table, and its time in milliseconds since 1970."""

    number: int
    millis: int


@dataclass(frozen=True)
class Table:
    """A Delta table by its path."""

    spark: SparkSession
    path: str

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return properties_of(self.spark, self.path) is not None

    @property
    def id(self) -> str:
        """Delta's own id of it."""
        return str(self._one(f"DESCRIBE DETAIL {sql_name(self.path)}")["id"])

    @property
    def last(self) -> Version:
        """The newest version."""
        row = self._one(f"DESCRIBE HISTORY {sql_name(self.path)} LIMIT 1")
        return Version(int(row["version"]), int(row["timestamp"].timestamp() * 1000))

    def _one(self, query: str) -> Any:  # noqa: ANN401 - a Row
        return self.spark.sql(query).collect()[0]

    def rows(self, version: int | None = None) -> DataFrame:
        """Return the rows of a version; of the newest at each action if none is given."""
        reader = self.spark.read.format("delta")
        reader = reader if version is None else reader.option("versionAsOf", version)
        return reader.load(self.path)


def sql_name(path: str) -> str:
    """Return the name of the table at a path in SQL.

    Examples
    --------
    >>> print(sql_name("warehouse/it`s"))
    delta.`warehouse/it``s`
    """
    return "delta.`{}`".format(path.replace("`", "``"))


def properties_of(spark: SparkSession, path: str) -> Mapping[str, str] | None:
    """Return the properties of the Delta table at a path; None if there is no table."""
    try:
        [detail] = spark.sql(f"DESCRIBE DETAIL {sql_name(path)}").collect()
    except AnalysisException as error:
        if error.getCondition() in _NO_TABLE:
            return None
        raise
    properties: Mapping[str, str] = detail["properties"]
    return properties


def write_delta(
    rows: DataFrame,
    path: str,
    query: str,
    number: int,
    *,
    mode: str = "append",
    partition_by: tuple[str, ...] = (),
    **options: str,
) -> None:
    """Write rows to a Delta table in one transaction, unless it knows this number already."""
    numbered = {"txnAppId": f"semistream {query}", "txnVersion": str(number)}
    writer = rows.write.format("delta").options(**options | numbered).mode(mode)
    writer = writer.partitionBy(*partition_by) if partition_by else writer
    writer.save(path)


def limit_log_tasks(spark: SparkSession) -> None:
    """Have Delta read a table's log in no more tasks than run at once, unless a number is set.

    Delta does so at every commit, by default in 50 tasks: in a small micro-batch on a small machine
    that took most of the time.
    """
    if spark.conf.get(_LOG_TASKS, None) is None:
        spark.conf.set(_LOG_TASKS, str(min(_DELTAS_OWN, spark.sparkContext.defaultParallelism)))
