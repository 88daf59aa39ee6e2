"""What becomes of rows without a master row: every way through Spark, against DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import OptionError, SchemaError

pytestmark = pytest.mark.xdist_group("spark")

WAYS = [
    {"transfer": "keys"},
    {"transfer": "rows"},
    {"transfer": "rows", "read": "direct", "algorithm": "cachejoin", "partition": "key"},
]


def products(duplicates: int = 1) -> pa.Table:
    """Every third key is absent; a name, and at times a surrogate, is null."""
    keys = [key for key in range(900) if key % 3 for _ in range(duplicates)]
    return pa.table(
        {
            "id": keys,
            "surrogate": [None if key % 7 == 0 else key * 10 for key in keys],
            "name": [None if key % 5 == 0 else f"product {key}" for key in keys],
        }
    )


def sales() -> pa.Table:
    keys = [None if sale % 17 == 0 else sale * 7919 % 1_000 for sale in range(3_000)]
    return pa.table({"sale": list(range(3_000)), "id": keys})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("missing")


@pytest.fixture(scope="module")
def master(folder):
    return ss.build_master(products(), folder / "products", key="id", page_bytes="8KB").path


@pytest.fixture(scope="module")
def stream(spark, folder):
    path = str(folder / "sales")
    spark.createDataFrame(sales()).repartition(3).write.parquet(path)
    return spark.read.parquet(path)


STATUS = (
    "CASE WHEN m.id IS NOT NULL THEN 'matched' WHEN s.id IS NULL THEN 'null key' ELSE 'absent' END"
)


def by_duckdb(columns: str, where: str = "true", master: pa.Table | None = None) -> list[tuple]:
    connection = duckdb.connect()
    connection.register("sales", sales())
    connection.register("products", products() if master is None else master)
    query = f"""SELECT {columns} FROM sales s LEFT JOIN products m ON s.id = m.id WHERE {where}"""  # noqa: S608
    return sorted(connection.sql(query).fetchall(), key=repr)


def rows_of(df) -> list[tuple]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def enriched(stream, master, **wish):
    return ss.enrich(stream, master, on="id", how="left", memory="4MB", check=False, **wish)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_status_tells_absent_rows_from_null_keys(stream, master, way):
    got = enriched(stream, master, status="_status", **way)
    assert got.columns == ["sale", "id", "surrogate", "name", "_status"]
    assert rows_of(got) == by_duckdb(f"s.*, surrogate, name, {STATUS}")


def test_a_status_tells_of_rows_with_several_matches_and_of_no_columns(stream, folder, master):
    several = ss.build_master(products(3), folder / "several", key="id")
    got = enriched(stream, several.path, status="found out")
    assert rows_of(got) == by_duckdb(f"s.*, surrogate, name, {STATUS}", master=products(3))
    for way in WAYS[:2]:
        got = enriched(stream, master, status="_status", select=[], **way)
        assert rows_of(got) == by_duckdb(f"s.*, {STATUS}")


def test_one_null_makes_a_key_of_several_columns_null(spark, folder):
    table = pa.table({"a": [1, 1], "b": ["x", "y"], "v": [10, 11]})
    master = ss.build_master(table, folder / "two", key=["a", "b"])
    rows = [(1, "x"), (1, None), (None, None), (2, "x")]
    stream = spark.createDataFrame(rows, "a long, b string")
    for way in WAYS[:2]:
        got = ss.enrich(stream, master, on=["a", "b"], how="left", status="_status", **way)
        told = {(row.a, row.b): row["_status"] for row in got.collect()}
        assert list(map(told.get, rows)) == ["matched", "null key", "null key", "absent"]


def test_a_status_is_refused_where_it_says_nothing(stream, master):
    with pytest.raises(OptionError, match=r"status='_s' tells .* how='inner'.*take how='left'"):
        ss.enrich(stream, master, on="id", status="_s")
    for name in ("sale", "name"):
        with pytest.raises(SchemaError, match=f"status='{name}' is a column already"):
            enriched(stream, master, status=name)


def test_a_key_of_another_type_is_an_error_and_no_absent_row(stream, master):
    with pytest.raises(SchemaError, match=r"'id' is string.*cast the stream's column to int64"):
        enriched(stream.selectExpr("sale", "cast(id AS string) AS id"), master, status="_status")
    with pytest.raises(SchemaError, match="'id' of type double cannot be a join key"):
        enriched(stream.selectExpr("sale", "cast(id AS double) AS id"), master, status="_status")
