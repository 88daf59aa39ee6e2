"""Arguments of a wrong kind: each is refused by name, with what to give instead."""

from __future__ import annotations

import re

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import OptionError, SchemaError
from semistream.hotset import HostShare

pytestmark = pytest.mark.xdist_group("spark")

STREAM = pa.schema([("id", pa.int64()), ("sale", pa.int64())])
ARROW = pa.table({"id": [1]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("messages")
    ss.build_master(pa.table({"id": range(9), "price": range(9)}), path / "m", key="id")
    pq.write_table(pa.table({"id": [1], "price": [2]}), path / "source.parquet")
    return path


def test_a_join_opens_the_path_of_a_master(folder) -> None:
    batch = pa.record_batch({"id": [3, 4], "sale": [1, 2]}, schema=STREAM)
    for path in (folder / "m", str(folder / "m")):
        with ss.Join(path, STREAM, on="id", memory="1MB") as join:
            found = [row for out in (*join.offer(batch), *join.drain()) for row in out.to_pylist()]
        assert [row["price"] for row in found] == [3, 4]


JOINS = [
    ({"master": None}, "master=None is no master table; give the path"),
    ({"master": 7}, "master=7 is no master table; give the path"),
    ({"stream_schema": None}, r"schema is None; give a pyarrow.Schema.*batch\.schema"),
    ({"stream_schema": ["id"]}, r"schema is \['id'\]; give a pyarrow.Schema"),
    ({"on": 7}, "on=7 names no columns; give a column's name, a list"),
    ({"on": None}, "on=None names no columns; give"),
    ({"on": [7]}, r"on=\[7\] names no columns; give"),
    ({"on": [["id"]]}, r"on=\[\['id'\]\] names no columns; give"),
    ({"on": {"id": 7}}, "on={'id': 7} names no columns; give"),
    ({"on": {7: "id"}}, "on={7: 'id'} names no columns; give"),
    ({"select": "price"}, r"select='price' is one string; give a list.*select=\['price'\]"),
    ({"select": 7}, r"select=7 is no list of column names; give one"),
    ({"select": [None]}, r"select=\[None\] is no list of column names; give one"),
    ({"select": {"price": 1}}, "is no list of column names; give one"),
    ({"prefix": 7}, "prefix=7 is no string; give what is put before"),
    ({"prefix": None}, "prefix=None is no string; give .*, or leave prefix out"),
    ({"mark": 7, "how": "left"}, "mark=7 is no string; give the name of a column"),
    ({"shared": "/dev/shm/x"}, "shared='/dev/shm/x' is no HostShare; give .*HostShare"),  # noqa: S108
    ({"filter": "no"}, "filter='no' is not possible; give True, False or None"),
    ({"clock": 7}, "clock=7 is no function; give one that returns seconds"),
    ({"algorithm": None}, "algorithm None is not known; choose one of"),
    ({"how": None}, "how None is not known; choose one of"),
    ({"max_wait": "1s"}, "max_wait='1s' is not possible; give positive seconds"),
]


@pytest.mark.parametrize(("given", "told"), JOINS, ids=lambda v: v if isinstance(v, str) else "")
def test_arguments_of_a_join(folder, given, told) -> None:
    wish = {"master": folder / "m", "stream_schema": STREAM, "on": "id", "memory": "1MB", **given}
    with pytest.raises((OptionError, SchemaError), match=told):
        ss.Join(**wish)


PLANS = [
    ({"master": None}, "master=None is no master table; give the path"),
    ({"stream_schema": 7, "on": "id"}, "schema is 7; give a pyarrow.Schema"),
    ({"on": 7, "stream_schema": STREAM}, "on=7 names no columns; give"),
    ({"select": "price"}, "select='price' is one string; give a list"),
    ({"algorithm": ["inlj"]}, r"algorithm .*inlj.* is not known; choose one of"),
    ({"absent": "x"}, "absent='x' is no number; give one"),
    ({"stream_row": None}, "stream_row=None is no number; give one"),
    ({"batch_rows": "x"}, "batch_rows='x' is no number; give one"),
    ({"sample": 7}, "sample=7 is no sample; give files"),
    ({"machine": 7}, "machine=7 is no machine; give a Machine, a mapping"),
]


@pytest.mark.parametrize(("given", "told"), PLANS, ids=lambda v: v if isinstance(v, str) else "")
def test_arguments_of_a_plan(folder, given, told) -> None:
    with pytest.raises((OptionError, SchemaError), match=told):
        ss.plan(**{"master": folder / "m", "memory": "1MB", **given})


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("id", r"columns='id' is one string; give .*columns=\['id'\]"),
        (7, "columns=7 is no list of column names; give one"),
        ([7], r"columns=\[7\] is no list of column names; give one"),
    ],
)
def test_columns_of_a_build(folder, columns, told) -> None:
    with pytest.raises(OptionError, match=told):
        ss.build_master(folder / "source.parquet", folder / "new", key="id", columns=columns)


ENRICHMENTS = [
    ({"df": None}, r"df is None; give a DataFrame of Spark: spark\.createDataFrame"),
    ({"df": pd.DataFrame({"id": [1]})}, "df is a pandas DataFrame; give a DataFrame of Spark"),
    ({"df": ARROW}, "df is a pyarrow Table; give .*semistream.Join"),
    ({"master": None}, "master=None is no master table; give the path"),
    ({"on": [7]}, r"on=\[7\] names no columns; give"),
    ({"select": "price"}, "select='price' is one string; give a list"),
    ({"prefix": None}, "prefix=None is no string; give .*, or leave prefix out"),
    ({"name": 7}, "name=7 is no string; give"),
    ({"status": 7, "how": "left"}, "status=7 is no string; give the name of a column"),
    ({"tasks": 0}, "tasks=0 is not possible; give how many"),
    ({"tasks": "2"}, "tasks='2' is not possible; give how many"),
    ({"localize": 1.5}, "localize=1.5 is not a size; give bytes"),
]


@pytest.mark.parametrize(
    ("given", "told"), ENRICHMENTS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_arguments_of_an_enrichment(spark, folder, given, told) -> None:
    wish = {"df": spark.range(3), "master": folder / "m", "on": "id", "memory": "16MB", **given}
    with pytest.raises((OptionError, SchemaError), match=told):
        ss.enrich(**wish)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"spark": None}, r"spark is None; give a session of Spark.*df\.sparkSession"),
        ({"each": 7}, "each=7 is no function; give one that takes"),
        ({"prometheus": "9095"}, "prometheus='9095' is no port; give one"),
        ({"prometheus": 70_000}, "prometheus=70000 is no port; give one up to 65,535"),
        ({"address": 7, "prometheus": 0}, "address=7 is no address; give"),
    ],
)
def test_arguments_of_watch(spark, given, told) -> None:
    with pytest.raises(OptionError, match=told):
        ss.watch(**{"spark": spark, **given})


def test_split_takes_a_dataframe() -> None:
    with pytest.raises(OptionError, match="batch is a pyarrow Table; give a DataFrame of Spark"):
        ss.split(ARROW).__enter__()


# -- the names of types ---------------------------------------------------------------------------


def test_types_have_the_names_that_spark_gives_them(spark, folder) -> None:
    wish = {"on": "id", "memory": "16MB", "check": False}
    with pytest.raises(SchemaError, match=r"'id' is string.* compared as bigint\..* to bigint, or"):
        ss.enrich(spark.sql("SELECT 'a' AS id"), folder / "m", **wish)
    with pytest.raises(SchemaError, match=r"'id' of type array<bigint> cannot be a join key"):
        ss.enrich(spark.sql("SELECT array(1L) AS id"), folder / "m", **wish)
    with pytest.raises(SchemaError, match=r"column 'price', which is bigint; give"):
        ss.enrich(spark.range(3), folder / "m", how="left", on_missing={"price": "x"}, **wish)
    with pytest.raises(SchemaError) as raised:
        ss.Join(folder / "m", pa.schema([("id", pa.string())]), on="id")
    assert re.search(r"is string, the master's 'id' is compared as int64", str(raised.value))


def test_a_share_is_taken(folder, tmp_path) -> None:
    ss.Join(folder / "m", STREAM, on="id", shared=HostShare(tmp_path, 2)).close()
