"""The table of rows that wait for their master row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType, TimestampType

from semistream.errors import OptionError
from semistream.missing import SINCE
from semistream.names import RESERVED
from semistream.pipeline.io.delta import Table, properties_of, sql_name, write_delta
from semistream.spark.storage import hadoop_path
from semistream.spark.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from semistream.pipeline.checkpoint.batch_log import MicroBatch

__all__ = ["AGAIN", "CAME", "EVERY", "WaitingTable"]

AGAIN, CAME = f"{RESERVED}_again", f"{RESERVED}_came"
"""Columns of rows on their way: whether they have waited, and since when."""
EVERY = 1 << 62
"""As a bound in milliseconds: all rows."""

_OWNER = "semistream.owner"
_CLEAN = 100  # batches between two removals of unused files: listing a folder takes a while
_AGE = 3_600_000  # milliseconds; a younger file may be one that a dying driver still writes
_CHECKED = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
_PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 1 hour",
    "delta.logRetentionDuration": "interval 1 day",
}


class WaitingTable:
    """A Delta table of a stream's rows; a micro-batch changes it in one transaction, or not at all.

    ``stream`` has the columns of the stream before any enrichment; ``owner`` says whose rows they
    are: the same over restarts, another for another checkpoint.
    """

    def __init__(self, path: str, stream: Iterable[StructField], owner: str) -> None:
        self.path, self._owner, self._cleaned = path, owner, -1
        fields = [StructField(f.name, f.dataType) for f in stream]
        self._schema = StructType([*fields, StructField(SINCE, TimestampType())])

    def open(self, spark: SparkSession) -> None:
        """Create the table, or add new columns; raise for one that has rows of another pipeline."""
        properties = properties_of(spark, self.path)
        if properties is None:
            writer = spark.createDataFrame([], self._schema).writeTo(sql_name(self.path))
            writer = writer.using("delta").tableProperty(_OWNER, self._owner)
            for name, value in _PROPERTIES.items():
                writer = writer.tableProperty(name, value)
            writer.create()
            return
        if properties.get(_OWNER) != self._owner:
            msg = (
                f"the waiting table {self.path} belongs to another checkpoint, or is none, and has "
                f"{self.count(spark):,} rows; give this pipeline one of its own, as waiting: "
                "{path: …}, or remove it if its rows are not needed any more"
            )
            raise OptionError(msg)
        self._add_columns(spark)

    def _add_columns(self, spark: SparkSession) -> None:
        """Add the columns that the stream has come to have; raise for one with another type."""
        kinds = {field.name: field.dataType for field in Table(spark, self.path).rows().schema}
        for name, now in ((field.name, field.dataType.simpleString()) for field in self._schema):
            was = kinds[name].simpleString() if name in kinds else now
            if was != now:
                msg = (
                    f"the column {name!r} of the stream is {now}, and in the waiting table "
                    f"{self.path} it is {was}: bring back the type that it was, or start "
                    "anew with another checkpoint and another place in the sink"
                )
                raise OptionError(msg)
        if not kinds.keys() >= {*self._schema.names}:
            rows = spark.createDataFrame([], self._schema).write.format("delta")
            rows.option("mergeSchema", "true").mode("append").save(self.path)

    def count(self, spark: SparkSession, bound: int = EVERY) -> int:
        """Return how many rows have waited since then or longer."""
        return self._rows(spark, bound).count()

    def read(self, spark: SparkSession, bound: int = EVERY) -> DataFrame:
        """Return the rows that have waited since then or longer."""
        rows = self._rows(spark, bound).select(*map(quote, self._schema.names))
        return rows.withColumnRenamed(SINCE, CAME)

    def _rows(self, spark: SparkSession, bound: int = EVERY) -> DataFrame:
        rows = Table(spark, self.path).rows()
        return rows if bound == EVERY else rows.where(_until(bound))

    def add(self, rows: DataFrame, batch: MicroBatch) -> None:
        """Add rows that wait from now on."""
        self._write(rows, batch)

    def replace(self, rows: DataFrame, bound: int, batch: MicroBatch) -> None:
        """Replace the rows that have waited since ``bound`` or longer."""
        region = {} if bound == EVERY else {"replaceWhere": _until(bound)}
        # The session is the query's own. Rows that came just now lie outside of what they replace.
        rows.sparkSession.conf.set(_CHECKED, "false")
        self._write(rows, batch, mode="overwrite", **region)
        if batch.number // _CLEAN != self._cleaned:
            self._cleaned = batch.number // _CLEAN
            self._clean(rows.sparkSession)

    def _write(self, rows: DataFrame, batch: MicroBatch, **how: str) -> None:
        rows = rows.withColumn(SINCE, sf.col(CAME)).select(*map(quote, self._schema.names))
        write_delta(rows, self.path, batch.query, batch.number, partition_by=(), **how)

    def _clean(self, spark: SparkSession) -> None:
        """Remove files that are no longer the table's, which no one else has reason to read.

        Delta's VACUUM would list the folder in ten thousand tasks, and print to the terminal.
        """
        used = {file.rpartition("/")[2] for file in self._rows(spark).inputFiles()}
        files, folder = hadoop_path(spark, self.path)
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        old = jvm.System.currentTimeMillis() - _AGE
        for file in files.listStatus(folder):
            name = file.getPath().getName()
            if name.endswith(".parquet") and name not in used and file.getModificationTime() < old:
                files.delete(file.getPath(), False)


def _until(bound: int) -> str:
    return f"{SINCE} <= timestamp_millis({bound})"
