"""The table of rows that wait, and what a batch has found of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType, TimestampType

from semistream.errors import OptionError
from semistream.missing import SINCE
from semistream.names import RESERVED
from semistream.pipeline.io.batches import write_delta
from semistream.pipeline.io.delta import Table, properties_of, sql_name
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from semistream.pipeline.checkpoint.micro_batch import Once

__all__ = ["AGAIN", "CAME", "EVERY", "Found", "WaitingTable"]

AGAIN, CAME = f"{RESERVED}_again", f"{RESERVED}_came"
"""On their way rows tell whether they have waited, and since when: no name of anyone else."""
EVERY = 1 << 62
"""As a bound in milliseconds: all rows."""

_OWNER = "semistream.owner"
_CLEAN = 100  # batches in which files that are no longer used are removed once
_AGE = 3_600_000  # milliseconds; a younger file may be one that a dying driver still writes
_CHECKED = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
_PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 1 hour",
    "delta.logRetentionDuration": "interval 1 day",
}


class WaitingTable:
    """A Delta table of a stream's rows; a micro-batch changes it in one transaction, or not at all.

    Parameters
    ----------
    path
        Where it is.
    stream
        The columns of the stream, before any enrichment.
    owner
        Whose rows they are: the same over restarts, another for another checkpoint.
    """

    def __init__(self, path: str, stream: Iterable[StructField], owner: str) -> None:
        self.path, self._owner, self._cleaned = path, owner, -1
        fields = [StructField(f.name, f.dataType) for f in stream]
        self._schema = StructType([*fields, StructField(SINCE, TimestampType())])

    def open(self, spark: SparkSession) -> None:
        """Make the table if it is not there, or fit it; refuse one with rows of someone else."""
        properties = properties_of(spark, self.path)
        if properties is None:
            self._make(spark)
            return
        if properties.get(_OWNER) != self._owner:
            msg = (
                f"the waiting table {self.path} belongs to another checkpoint, or is none, and has "
                f"{self.count(spark):,} rows; give this pipeline one of its own, as waiting: "
                "{path: …}, or remove it if its rows are not needed any more"
            )
            raise OptionError(msg)
        self._fit(spark)

    def _make(self, spark: SparkSession) -> None:
        writer = spark.createDataFrame([], self._schema).writeTo(sql_name(self.path))
        writer = writer.using("delta").tableProperty(_OWNER, self._owner)
        for name, value in _PROPERTIES.items():
            writer = writer.tableProperty(name, value)
        writer.create()

    def _fit(self, spark: SparkSession) -> None:
        """Add the columns that the stream has come to have; refuse one with another type."""
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
        """Give how many rows have waited since then or longer."""
        return self._rows(spark, bound).count()

    def read(self, spark: SparkSession, bound: int = EVERY) -> DataFrame:
        """Give the rows that have waited since then or longer."""
        rows = self._rows(spark, bound).select(*map(quoted, self._schema.names))
        return rows.withColumnRenamed(SINCE, CAME)

    def _rows(self, spark: SparkSession, bound: int = EVERY) -> DataFrame:
        rows = Table(spark, self.path).rows()
        return rows if bound == EVERY else rows.where(_until(bound))

    def add(self, rows: DataFrame, once: Once) -> None:
        """Let more rows wait."""
        self._write(rows, once)

    def replace(self, rows: DataFrame, bound: int, once: Once) -> None:
        """Put rows into the place of those that have waited since ``bound`` or longer."""
        region = {} if bound == EVERY else {"replaceWhere": _until(bound)}
        # The session is the query's own. Rows that came just now lie outside of what they replace.
        rows.sparkSession.conf.set(_CHECKED, "false")
        self._write(rows, once, mode="overwrite", **region)
        if once.number // _CLEAN != self._cleaned:
            self._cleaned = once.number // _CLEAN
            self._clean(rows.sparkSession)

    def _write(self, rows: DataFrame, once: Once, **how: str) -> None:
        rows = rows.withColumn(SINCE, sf.col(CAME)).select(*map(quoted, self._schema.names))
        write_delta(rows, self.path, once.query, once.number, partition_by=(), **how)

    def _clean(self, spark: SparkSession) -> None:
        """Remove files that are no longer the table's, which no one else has reason to read.

        Delta's VACUUM would list the folder in ten thousand tasks, and print to the terminal.
        """
        used = {file.rpartition("/")[2] for file in self._rows(spark).inputFiles()}
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        folder = jvm.org.apache.hadoop.fs.Path(self.path)
        files = folder.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
        old = jvm.System.currentTimeMillis() - _AGE
        for file in files.listStatus(folder):
            name = file.getPath().getName()
            if name.endswith(".parquet") and name not in used and file.getModificationTime() < old:
                files.delete(file.getPath(), False)


def _until(bound: int) -> str:
    return f"{SINCE} <= timestamp_millis({bound})"


class Group(NamedTuple):
    """Rows of a batch that go one way."""

    rows: int
    oldest: int
    """Since when the first of them wait."""
    missing: int
    """How many lack a master row."""


@dataclass(frozen=True)
class Found:
    """How many rows of a batch go where, and since when the oldest of them wait."""

    groups: Mapping[tuple[bool, str, str], Group]
    """Whether they have waited before, where they go, and by which status column that is so."""

    @classmethod
    def of(cls, rows: DataFrame, outcome: str, by: str, missing: Column) -> Found:
        """Count rows by where they go and why; among them those that lack a master row."""
        told = sf.count(sf.lit(1)), sf.min(sf.unix_millis(CAME)), sf.count_if(missing)
        groups = rows.groupBy(AGAIN, outcome, by).agg(*told).collect()
        return cls({(again, to, why): Group(*told) for again, to, why, *told in groups})

    @property
    def total(self) -> int:
        """All rows."""
        return sum(group.rows for group in self.groups.values())

    def count(self, where: str, again: bool | None = None, by: str | None = None) -> int:
        """Count the rows that go somewhere.

        Parameters
        ----------
        where
            Where they go.
        again
            Only those that have waited before, or have not.
        by
            Only those that this status column has sent there.

        Examples
        --------
        >>> groups = {(True, "out", ""): Group(5, 0, 2), (False, "wait", "a"): Group(3, 0, 3)}
        >>> found = Found(groups | {(True, "wait", "b"): Group(4, 0, 4)})
        >>> found.count("wait"), found.count("wait", again=True), found.count("wait", by="a")
        (7, 4, 3)
        """
        return sum(
            group.rows
            for (waited, to, why), group in self.groups.items()
            if to == where and again in {None, waited} and by in {None, why}
        )

    def left(self, *ways: str) -> tuple[int, int]:
        """Count the rows that have waited and go there: those that are whole now, the others.

        Examples
        --------
        >>> groups = {(True, "out", ""): Group(5, 0, 2), (True, "wait", "a"): Group(3, 0, 3)}
        >>> Found(groups | {(False, "out", ""): Group(9, 0, 0)}).left("out", "quarantine")
        (3, 2)
        """
        groups = [group for (again, to, _), group in self.groups.items() if again and to in ways]
        missing = sum(group.missing for group in groups)
        return sum(group.rows for group in groups) - missing, missing

    def oldest(self, where: str) -> int:
        """Give since when the oldest row waits that goes somewhere."""
        times = [group.oldest for (_, to, _), group in self.groups.items() if to == where]
        return min(times, default=EVERY)

    def __str__(self) -> str:
        ways = sorted({(again, where) for again, where, _ in self.groups})
        return ", ".join(
            f"{self.count(where, again):,} {where}{' after waiting' if again else ''}"
            for again, where in ways
        )
