"""What becomes of rows without a master row: every way through Spark, against DuckDB."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import semistream as ss
from semistream.errors import OptionError, SchemaError
from support import wait_for
from support.frames import rows_of, rows_of_each

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


def enriched(stream, master, **wish):
    return ss.enrich(stream, master, on="id", how="left", memory="4MB", check=False, **wish)


def test_a_status_tells_absent_rows_from_null_keys(stream, master):
    got = {str(way): enriched(stream, master, status="_status", **way) for way in WAYS}
    for way, rows in rows_of_each(got).items():
        assert got[way].columns == ["sale", "id", "surrogate", "name", "_status"], way
        assert rows == by_duckdb(f"s.*, surrogate, name, {STATUS}"), way


def test_a_status_tells_of_rows_with_several_matches_and_of_no_columns(stream, folder, master):
    several = ss.build_master(products(3), folder / "several", key="id")
    got = {"several": enriched(stream, several.path, status="found out")}
    for way in WAYS[:2]:
        got[str(way)] = enriched(stream, master, status="_status", select=[], **way)
    rows = rows_of_each(got)
    wanted = by_duckdb(f"s.*, surrogate, name, {STATUS}", master=products(3))
    assert rows.pop("several") == wanted
    for way, each in rows.items():
        assert each == by_duckdb(f"s.*, {STATUS}"), way


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
    with pytest.raises(SchemaError, match=r"'id' is string.*cast the stream's column to bigint"):
        enriched(stream.selectExpr("sale", "cast(id AS string) AS id"), master, status="_status")
    with pytest.raises(SchemaError, match="'id' of type double cannot be a join key"):
        enriched(stream.selectExpr("sale", "cast(id AS double) AS id"), master, status="_status")


# -- what becomes of them -----------------------------------------------------------------------

FOUND = "m.id IS NOT NULL"
VALUES = {"surrogate": -1, "name": "unknown"}
FILLED = (
    f"CASE WHEN {FOUND} THEN surrogate ELSE -1 END, CASE WHEN {FOUND} THEN name ELSE 'unknown' END"
)
POLICIES = {
    "null": ("s.*, surrogate, name", "true"),
    "defaults": (f"s.*, {FILLED}", "true"),
    "drop": ("s.*, surrogate, name", FOUND),
    "quarantine": (f"s.*, surrogate, name, {STATUS}", "true"),
    "wait": (f"s.*, surrogate, name, {STATUS}", "true"),
}


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: "-".join(way.values()))
def test_rows_without_a_master_row_become_what_was_asked_for(stream, master, way):
    asked = {policy: VALUES if policy == "defaults" else policy for policy in POLICIES}
    got = {p: enriched(stream, master, on_missing=wish, **way) for p, wish in asked.items()}
    for policy, rows in rows_of_each(got).items():
        assert rows == by_duckdb(*POLICIES[policy]), policy


def test_rows_with_several_matches_too(stream, folder):
    several = ss.build_master(products(3), folder / "several again", key="id").path
    asked = {"defaults": VALUES, "drop": "drop", "quarantine": "quarantine"}
    got = {policy: enriched(stream, several, on_missing=wish) for policy, wish in asked.items()}
    for policy, rows in rows_of_each(got).items():
        assert rows == by_duckdb(*POLICIES[policy], master=products(3)), policy


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: "-".join(way.values()))
def test_a_missing_row_is_an_error_with_keys_where_it_was_to_be_one(spark, stream, master, way):
    good = stream.where("id % 3 != 0 AND id < 900")
    assert enriched(good, master, on_missing="error", **way).count() == good.count() > 0
    for condition, keys in (("id % 3 = 0", r"id=\d+, .* and \d+ more"), ("id IS NULL", "id=null.")):
        wrong = enriched(stream.where(condition), master, on_missing="error", **way)
        with pytest.raises(Exception, match=rf"MissingRowsError: .*'products.* keys are {keys}"):
            wrong.collect()


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: "-".join(way.values()))
def test_a_row_that_one_enrichment_has_parted_is_no_matter_of_the_next(stream, master, folder, way):
    """The next one's key comes from the first: it is null where the first found nothing."""
    table = pa.table({"surrogate": [key * 10 for key in range(900)], "shelf": list(range(900))})
    shelves = ss.build_master(table, folder / f"shelves {way['transfer']}", key="surrogate").path
    first = enriched(stream.where("id IS NULL OR id % 7 != 0"), master, on_missing="quarantine")
    wish = {"on": "surrogate", "how": "left", "memory": "4MB", "check": False, **way}
    alone = ss.enrich(first, shelves, on_missing="error", **wish)
    expected = by_duckdb(f"s.*, surrogate, name, {STATUS}", "s.id IS NULL OR s.id % 7 != 0")
    assert rows_of(alone.drop("shelf")) == expected
    dropped = ss.enrich(first, shelves, on_missing="drop", **wish)
    assert dropped.count() == len(expected)


def test_default_values_are_typed(spark, folder):
    now = dt.datetime(2024, 5, 6, 7, 8, 9)
    row = {
        "id": 1,
        "day": now.date(),
        "at": now,
        "price": Decimal("1.50"),
        "rate": 0.5,
        "raw": b"r",
    }
    columns = {name: [value] for name, value in row.items()}
    utc = pa.array([now], pa.timestamp("us", "UTC"))
    table = pa.table({**columns, "flag": [True], "small": pa.array([3], pa.uint8()), "zoned": utc})
    master = ss.build_master(table, folder / "typed", key="id").path
    values = {
        "day": "2001-02-03",
        "at": dt.datetime(2001, 2, 3, 4, 5),
        "price": 0.25,
        "rate": 2,
        "raw": b"x",
        "flag": False,
        "small": 255,
        "zoned": "2001-02-03T04:05:00Z",
    }
    stream = spark.createDataFrame([(1,), (2,)], "id long")
    wish = {"on": "id", "how": "left", "prefix": "p_", "on_missing": values, "check": False}
    for way in WAYS[:2]:
        got = ss.enrich(stream, master, **wish, **way).orderBy("id").toArrow()
        kept = table.select(got.column_names and table.column_names[1:]).to_pylist()[0]
        first, second = (
            {k.removeprefix("p_"): v for k, v in row.items()} for row in got.to_pylist()
        )
        assert {k: v for k, v in first.items() if k != "id"} == kept
        assert second["day"] == dt.date(2001, 2, 3)
        assert second["at"] == dt.datetime(2001, 2, 3, 4, 5)
        assert second["zoned"] == dt.datetime(2001, 2, 3, 4, 5, tzinfo=dt.UTC)
        assert second["price"] == Decimal("0.25")
        assert [second[k] for k in ("rate", "raw", "flag", "small")] == [2.0, b"x", False, 255]


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ("dropp", OptionError, "choose one of: drop, error, null, quarantine, wait.*'drop'"),
        ({"nam": "x"}, SchemaError, "no column 'nam'.*Did you mean 'name'"),
        ({"name": 3}, SchemaError, "3 is no default value of column 'name', which is string"),
        (
            {"surrogate": "x"},
            SchemaError,
            "'x' is no default value of column 'surrogate', which is bigint",
        ),
        ({"surrogate": 1.5}, SchemaError, "1.5 is no default value of column 'surrogate'"),
        ({}, OptionError, "gives no default value"),
    ],
)
def test_mistakes_are_told_before_anything_runs(stream, master, asked, error, told):
    with pytest.raises(error, match=told):
        enriched(stream, master, on_missing=asked)


def test_what_becomes_of_rows_is_asked_of_left_joins_only(stream, master):
    with pytest.raises(OptionError, match="how='inner' has said it already; take how='left'"):
        ss.enrich(stream, master, on="id", on_missing="drop")


def test_rows_are_counted_by_what_became_of_them(spark, master, folder, tmp_path):
    seen = []
    ss.watch(spark, seen.append)
    source = spark.readStream.schema("sale long, id long").parquet(str(folder / "sales"))
    frame = enriched(source, master, on_missing="drop", name="counted", transfer="keys")
    frame = enriched(
        frame, master, on_missing="quarantine", name="again", prefix="a_", transfer="rows"
    )
    query = frame.writeStream.format("noop").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    kinds = dict(by_duckdb(f"{STATUS}, count(*)", "true GROUP BY 1"))
    missing = kinds["absent"] + kinds["null key"]
    wait_for("metrics", lambda: len([m for m in seen if m.name in {"counted", "again"}]) == 2)
    first, second = (next(m for m in seen if m.name == name) for name in ("counted", "again"))
    assert first.missing == {"dropped": missing}
    assert (first.matched, first.absent, first.null_keys) == (
        kinds["matched"], kinds["absent"], kinds["null key"],
    )  # fmt: skip
    assert f"{kinds['null key']} null keys, {missing:,} dropped" in str(first)
    assert (second.rows, second.missing) == (kinds["matched"], {"quarantined": 0})


JOINS = {
    "inner": {"how": "inner"},
    "left": {"how": "left"},
    "drop": {"how": "left", "on_missing": "drop"},
    "quarantine": {"how": "left", "on_missing": "quarantine"},
    "wait": {"how": "left", "on_missing": "wait"},
    "semi": {"how": "semi"},
    "anti": {"how": "anti"},
}
OUT = {"inner": ["matched"], "drop": ["matched"], "semi": ["matched"]}
OUT |= {"anti": ["absent", "null key"]}


def counted(kinds, kind):
    """Give what is to be reported of a join: rows, matched, absent, null keys, out, others."""
    lacking = kinds["absent"] + kinds["null key"]
    missing = {
        "drop": {"dropped": lacking},
        "quarantine": {"quarantined": lacking},
        "wait": {"waiting": kinds["absent"]},  # a null key does not wait
    }
    out = sum(kinds[told] for told in OUT.get(kind, kinds))
    found = kinds["matched"], kinds["absent"], kinds["null key"]
    return sum(kinds.values()), *found, out, missing.get(kind, {})


def reported(m):
    return m.rows, m.matched, m.absent, m.null_keys, m.counters["rows_out"], m.missing


def test_counts_are_the_same_whatever_passes_through_python(
    spark, stream, master, folder, tmp_path
):
    """Keys come several times, are null and absent."""
    seen = {}
    ss.watch(spark, lambda m: seen.update({m.name: m}))
    source = spark.readStream.schema(stream.schema).parquet(str(folder / "sales"))
    joined = [
        ss.enrich(
            source, master, on="id", memory="4MB", check=False, transfer=transfer,
            name=f"{kind} {transfer}", **join,
        ).select("sale")
        for kind, join in JOINS.items()
        for transfer in ("none", "keys", "rows")
    ]  # fmt: skip
    query = reduce(DataFrame.union, joined).writeStream.format("noop").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    wait_for("metrics", lambda: len(seen) >= len(joined))
    kinds = dict(by_duckdb(f"{STATUS}, count(*)", "true GROUP BY 1"))
    for name, metrics in seen.items():
        assert reported(metrics) == counted(kinds, name.split()[0]), name


def test_counts_in_a_foreach_batch_are_the_same_by_keys_and_by_rows(
    spark, stream, master, folder, tmp_path
):
    seen = {}
    ss.watch(spark, lambda m: seen.update({m.name: m}))
    joins = list(product(("inner", "left", "semi", "anti"), ("keys", "rows")))

    def write(batch, _):
        for how, transfer in joins:
            names = {"transfer": transfer, "name": f"{how} of {transfer}"}
            got = ss.enrich(batch, master, on="id", how=how, memory="4MB", check=False, **names)
            got.write.format("noop").mode("overwrite").save()

    source = spark.readStream.schema(stream.schema).parquet(str(folder / "sales"))
    query = source.writeStream.foreachBatch(write).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    wait_for("metrics", lambda: len(seen) >= len(joins))
    kinds = dict(by_duckdb(f"{STATUS}, count(*)", "true GROUP BY 1"))
    for name, metrics in seen.items():
        assert reported(metrics) == counted(kinds, name.split()[0]), name
