"""Delta tables as Spark writes them: deletion vectors, mapped columns, the change data feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import semistream as ss
from support.masters import PAGE, same_as_built
from support.matrix import ALL
from support.servers.connectors import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]


VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.mark.parametrize(
    ("properties", "how"),
    [
        (VECTORS | {"delta.columnMapping.mode": "name"}, "all rows"),
        (VECTORS | FEED, "all rows"),  # deltalake tells vectors wrong in a feed
        ({"delta.enableDeletionVectors": "false"} | FEED, "change data feed"),
    ],
    ids=["mapped columns", "vectors", "feed"],
)
def test_tables_that_spark_changed(spark: SparkSession, tmp_path, properties, how) -> None:
    require("delta")
    table = f"delta.`{tmp_path}/table`"
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    rows = "SELECT id, concat('product ', id) AS name FROM range(0, 2000, 1, 1)"
    spark.sql(f"CREATE TABLE {table} USING delta TBLPROPERTIES ({settings}) AS {rows}")
    path, uri = tmp_path / "master", str(tmp_path / "table")
    assert ss.build_master(uri, path, key="id", page_bytes=PAGE).rows == 2000
    steps = [
        f"DELETE FROM {table} WHERE id % 100 = 7",  # noqa: S608
        f"UPDATE {table} SET name = 'new' WHERE id = 12",  # noqa: S608
        f"DELETE FROM {table} WHERE id % 100 = 8",  # noqa: S608
        f"RESTORE TABLE {table} TO VERSION AS OF 1",  # rows come back, others are as they were
        f"DELETE FROM {table} WHERE id % 100 = 9",  # noqa: S608
        f"INSERT OVERWRITE {table} SELECT id, 'all new' FROM range(500, 900, 1, 1)",  # noqa: S608
        f"UPDATE {table} SET name = 'other' WHERE id = 600",  # noqa: S608
        f"UPDATE {table} SET name = 'all new' WHERE id = 600",  # noqa: S608
        # A file goes, of which a vector took a row that is there again, elsewhere.
        f"DELETE FROM {table} WHERE id <> 600",  # noqa: S608
    ]
    if how == "all rows" and "delta.columnMapping.mode" not in properties and not ALL:
        steps = steps[:3]  # that the feed is not asked for shows at once
    elif not ALL:  # one deletion of each kind
        steps = [step for step in steps if not step.endswith(("= 8", "= 9"))]
    for number, step in enumerate(steps):
        spark.sql(step)
        synced = ss.sync_master(path)
        assert synced.how == how, step
        wanted = pa.Table.from_pandas(spark.table(table).toPandas(), schema=synced.master.schema)
        same_as_built(synced.master, wanted, tmp_path / f"built {number}")


def test_a_mapped_column_that_has_the_name_of_another(spark: SparkSession, tmp_path) -> None:
    require("delta")
    table, path, uri = f"delta.`{tmp_path}/table`", tmp_path / "master", str(tmp_path / "table")
    settings = "'delta.columnMapping.mode' = 'name'"
    rows = "SELECT id, id * 1.0D AS price, id * 9.0D AS list FROM range(0, 100, 1, 1)"
    spark.sql(f"CREATE TABLE {table} USING delta TBLPROPERTIES ({settings}) AS {rows}")
    ss.build_master(uri, path, key="id", columns=["id", "price"], page_bytes=PAGE)
    spark.sql(f"ALTER TABLE {table} DROP COLUMN price")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN list TO price")
    synced = ss.sync_master(path)
    assert (synced.how, synced.values) == ("all rows", 99)  # that of 0 is 0 in both
    wanted = pa.Table.from_pandas(spark.table(table).toPandas(), schema=synced.master.schema)
    same_as_built(synced.master, wanted, tmp_path / "built")
