"""Spark's own joins of a stream with a static table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from benchmarks.spark.data import KEY, whole_folder
from benchmarks.spark.systems.base import TASKS, System

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from benchmarks.spark.data import Products
    from benchmarks.spark.systems.base import Setting

__all__ = ["SPARK"]


def _joined(hint: str | None) -> Callable[[DataFrame, Setting], DataFrame]:
    def join(df: DataFrame, at: Setting) -> DataFrame:
        products = df.sparkSession.read.parquet(str(at.products.parquet()))
        return df.join(products.hint(hint) if hint else products, KEY, at.how)

    return join


def _parquet(at: Setting) -> None:
    at.products.parquet()


def _bucketed(df: DataFrame, at: Setting) -> DataFrame:
    """Join by sorting the stream: the table lies in buckets by key, sorted, a file each."""
    spark = df.sparkSession
    # Else Spark does not believe that a bucket of one file is in order.
    spark.conf.set("spark.sql.legacy.bucketedTableScan.outputOrdering", "true")
    return df.join(spark.table(_named(spark, at.products)).hint("merge"), KEY, at.how)


def _write_buckets(at: Setting) -> None:
    """Write the table, once; Spark names a bucket's files itself, so that it finds them again."""
    products, spark = at.products, SparkSession.active()
    path = products.path("buckets")
    if path.exists():
        return
    rows = spark.read.parquet(str(products.parquet()))
    with whole_folder(path) as new:
        writer = rows.repartition(TASKS, KEY).write.bucketBy(TASKS, KEY).sortBy(KEY)
        writer.option("path", str(new / "rows")).saveAsTable("semistream_unfinished")
        spark.sql("DROP TABLE semistream_unfinished")


def _named(spark: SparkSession, products: Products) -> str:
    """Give the table's name, which a session knows once it has been told."""
    path = products.path("buckets")
    name = path.name.replace("-", "_").replace(".", "_")
    if not spark.catalog.tableExists(name):
        spark.sql(_definition(name, products, path))
    return name


def _definition(name: str, products: Products, path: Path) -> str:
    columns = ", ".join(f"{f.name} {_TYPES[str(f.type)]}" for f in products.schema)
    return (
        f"CREATE TABLE {name} ({columns}) USING parquet "
        f"CLUSTERED BY ({KEY}) SORTED BY ({KEY}) INTO {TASKS} BUCKETS LOCATION '{path / 'rows'}'"
    )


_TYPES = {"int64": "bigint", "int32": "int", "double": "double", "string": "string"}

SPARK: dict[str, System] = {
    "default": System("Spark's join", _joined(None), _parquet),
    "shuffle-hash": System("Spark's join, shuffle-hash", _joined("shuffle_hash"), _parquet),
    "sort-merge": System("Spark's join, sort-merge on buckets", _bucketed, _write_buckets),
    "broadcast": System("Spark's join, broadcast", _joined("broadcast"), _parquet, alone=True),
}
