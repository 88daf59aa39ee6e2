"""What Spark says of columns beside their types: how texts compare, whether they may be null."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import semistream as ss
from semistream.errors import BudgetError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark's own
]

COLLATED = "SELECT id, concat('Sku ', id) COLLATE UTF8_LCASE AS sku FROM range(0, 10, 1, 2)"


@pytest.mark.parametrize("transfer", ["keys", "rows"])
def test_keys_that_spark_does_not_compare_by_bytes_are_refused(
    spark: SparkSession, tmp_path, transfer
) -> None:
    collated = spark.sql(COLLATED)
    refused = r"column 'sku' has the collation UTF8_LCASE.*F\.collate\('sku', 'UTF8_BINARY'\)"
    with pytest.raises(SchemaError, match=refused):
        ss.build_master(collated, tmp_path / "m", key="sku")
    assert not (tmp_path / "m").exists()
    plain = collated.withColumn("sku", F.collate("sku", "UTF8_BINARY"))  # as the message says
    master = ss.build_master(plain, tmp_path / "m", key="sku")
    with pytest.raises(SchemaError, match=refused):
        ss.enrich(collated.select("sku"), master, on="sku", memory="16MB", transfer=transfer)
    sales = plain.select(F.lower("sku").alias("sku")).union(plain.select("sku"))
    found = ss.enrich(sales, master, on="sku", how="inner", memory="16MB", transfer=transfer)
    assert sorted(map(tuple, found.collect())) == [(f"Sku {i}", i) for i in range(10)]


@pytest.mark.parametrize("transfer", ["keys", "rows"])
def test_columns_of_a_master_may_be_null_for_a_later_snapshot_may_have_nulls(
    spark: SparkSession, tmp_path, transfer
) -> None:
    strict = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int32(), nullable=False)])
    table = pa.table({"id": range(10), "n": range(10)}, schema=strict)
    master = ss.build_master(table, tmp_path / "m", key="id")
    stream = spark.range(0, 10, 1, 1)
    found = ss.enrich(stream, master, on="id", how="inner", memory="16MB", transfer=transfer)
    assert found.schema["n"].nullable
    assert sorted(map(tuple, found.collect())) == [(i, i) for i in range(10)]


NULLABLE = "CASE WHEN id % 2 = 0 THEN named_struct('n', id, 'at', array(named_struct('x', id))) END"


@pytest.mark.parametrize("transfer", ["keys", "rows"])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_struct_with_required_fields_may_be_null(
    spark: SparkSession, tmp_path, transfer, how
) -> None:
    """In the master, in the stream, and where a row has no match."""
    rows = spark.range(0, 8, 1, 1).selectExpr("id AS k", f"{NULLABLE} AS s", "struct(id) AS t")
    master = ss.build_master(rows, tmp_path / "m", key="k")
    stream = spark.range(0, 10, 1, 1).selectExpr("id AS k", f"{NULLABLE} AS own")
    wish = {"how": how, "memory": "16MB", "check": False, "transfer": transfer}
    found = ss.enrich(stream, master, on="k", **wish)
    assert rows_of(found) == rows_of(stream.join(rows, "k", how))


# -- the least memory ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def days(spark: SparkSession, tmp_path_factory) -> str:
    rows = spark.sql("SELECT date_add(DATE'2020-01-01', int(id)) AS k, id AS v FROM range(300)")
    path = tmp_path_factory.mktemp("days")
    ss.build_master(rows, path, key="k", page_bytes=4096)
    return str(path)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("transfer", ["keys", "rows", "auto"])
def test_the_least_memory_that_is_named_works_and_a_byte_less_does_not(
    spark: SparkSession, days: str, transfer: str, tasks: int
) -> None:
    stream = spark.sql("SELECT date_add(DATE'2020-01-01', int(id)) AS k FROM range(50)")

    def enriched(memory: int) -> DataFrame:
        wish = {"how": "left", "transfer": transfer, "tasks": tasks, "check": False}
        return ss.enrich(stream, days, on="k", memory=memory, **wish)

    def least(memory: int) -> int:
        with pytest.raises(BudgetError, match=f"memory={memory:,} bytes") as raised:
            enriched(memory)
        return raised.value.least

    found = least(1)  # fewer bytes than tasks
    assert least(found - 1) == least(found // 2) == found
    assert sorted(row["v"] for row in enriched(found).collect()) == [*range(50)]


def rows_of(rows: DataFrame) -> list[str]:
    return sorted(map(repr, rows.collect()))
