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


@pytest.mark.parametrize(
    ("value", "kind"),
    [("map()", "map<void,void>"), ("map('a', array())", "map<string,array<void>>")],
)
def test_a_type_that_arrow_lacks_is_named(spark: SparkSession, tmp_path, value, kind) -> None:
    master = ss.build_master(pa.table({"id": [1]}), tmp_path / "m", key="id")
    stream = spark.range(3).selectExpr("id", f"{value} AS c")
    told = rf"column 'c' of type {kind} has no counterpart in Arrow; cast it"
    with pytest.raises(SchemaError, match=told):
        ss.enrich(stream, master, on="id", memory="16MB")
    with pytest.raises(SchemaError, match=told):
        ss.build_master(stream, tmp_path / "new", key="id")


WRITTEN = """
SELECT id AS k, timestamp_ntz'2021-03-28 02:30:00' AS a, timestamp'2021-03-28 01:30:00Z' AS `a.b`,
    named_struct('at', timestamp'2021-03-28 01:30:00Z', 'ntz', timestamp_ntz'2021-03-28 02:30:00',
        'deep', map('x.y', struct(timestamp'2021-03-28 01:30:00Z' AS at, INTERVAL '2' HOUR AS t)))
        AS s,
    array(timestamp'2021-03-28 01:30:00Z', NULL) AS `x.list`,
    CASE WHEN id > 0 THEN INTERVAL '1 02:03:04' DAY TO SECOND END AS iv, array(id) AS n
FROM range(3)
"""


def test_files_of_spark_have_the_types_that_spark_reads(spark: SparkSession, tmp_path) -> None:
    written = spark.sql(WRITTEN)
    written.repartition(1).write.parquet(str(tmp_path / "files"))
    from_files = ss.build_master(tmp_path / "files", tmp_path / "m", key="k")
    from_rows = ss.build_master(written, tmp_path / "built", key="k")
    wish = {"on": "k", "memory": "16MB", "check": False}
    found, wanted = (
        ss.enrich(spark.range(3).withColumnRenamed("id", "k"), master, **wish)
        for master in (from_files, from_rows)
    )
    assert found.schema.simpleString() == wanted.schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))


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
