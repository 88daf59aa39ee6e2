"""Inferred members: a surrogate for a key that is not there yet, made once, completed later."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest

from semistream.errors import OptionError, SchemaError
from semistream.pipeline.late.members import (
    Dimension,
    Members,
    MembersError,
    _retry_conflicts,
    complete_members,
)
from semistream.pipeline.late.split import add_batch_time
from support.servers.connectors import require

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]

NOW = 1_700_000_000_000


@pytest.fixture
def dimension(spark: SparkSession, tmp_path: Path) -> Dimension:
    require("delta")
    rows = [(1, 10, "one"), (2, 20, "two")]
    frame = spark.createDataFrame(rows, "id long, sk int, name string")
    frame.write.format("delta").save(str(tmp_path / "products"))
    made = Dimension(str(tmp_path / "products"), ("id",), "sk")
    made.open(spark)
    return made


def members(dimension: Dimension) -> Members:
    return Members(dimension, {"product": "id"}, "p_sk", "_status")


def marked(spark: SparkSession, *keys: int | None, known: tuple[int, ...] = (1,)) -> DataFrame:
    """Rows as an enrichment marks them, on a master that knows some keys."""
    rows = [(key, key * 10 if key in known else None, status(key, known)) for key in keys]
    return spark.createDataFrame(rows, "product long, p_sk int, _status string")


def status(key: int | None, known: tuple[int, ...]) -> str:
    return "null key" if key is None else "matched" if key in known else "absent"


def content(spark: SparkSession, dimension: Dimension) -> dict[int, tuple[int, str, bool]]:
    rows = dimension.read(spark).collect()
    found = {row["id"]: (row["sk"], row["name"], row["inferred"]) for row in rows}
    assert len(found) == len(rows)
    return found


def surrogates(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["product"] or 0, row["p_sk"] or 0) for row in rows.collect())


def test_new_keys_become_members_once_and_are_completed_in_place(
    spark: SparkSession, dimension: Dimension
) -> None:
    batch = marked(spark, 9, 1, 7, 9, 2, None)
    first = surrogates(members(dimension).fill(batch, NOW))
    # 2 is there already, though the master's pages do not know it; 7 and 9 are new, in this order.
    assert first == [(0, 0), (1, 10), (2, 20), (7, 21), (9, 22), (9, 22)]
    again = surrogates(members(dimension).fill(batch, NOW + 1))
    later = surrogates(members(dimension).fill(marked(spark, 9, 8), NOW + 2))
    assert again == first
    assert later == [(8, 23), (9, 22)]
    found = content(spark, dimension)
    assert found[9] == (22, None, True)
    assert {sk for sk, _, _ in found.values()} == {10, 20, 21, 22, 23}

    real = spark.createDataFrame([(9, "nine"), (2, "zwei"), (30, "thirty")], "id long, name string")
    how = {"key": "id", "surrogate": "sk"}
    for _ in range(2):
        complete_members(real, dimension.path, **how)
        found = content(spark, dimension)
        assert found[9] == (22, "nine", False)
        assert found[2] == (20, "zwei", False)
        assert found[30] == (24, "thirty", False)
        assert found[7] == (21, None, True)
        assert len(found) == 6


def test_writers_at_once_make_no_member_and_no_surrogate_twice(
    spark: SparkSession, dimension: Dimension
) -> None:
    batches = [marked(spark, 100, 50 + number, 60 + number, known=()) for number in range(3)]
    threads = [Thread(target=members(dimension).fill, args=(batch, NOW)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = content(spark, dimension)
    assert {*found} == {1, 2, 100, 50, 51, 52, 60, 61, 62}
    assert sorted(sk for sk, _, _ in found.values()) == [10, *range(20, 28)]


def test_what_is_wrong_is_said(spark: SparkSession, dimension: Dimension, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no Delta table at .*nowhere"):
        Dimension(str(tmp_path / "nowhere"), ("id",), "sk").open(spark)
    with pytest.raises(SchemaError, match=r"no column 'sku'.*Did you mean 'sk'"):
        Dimension(dimension.path, ("id",), "sku").open(spark)
    twice = spark.createDataFrame([(9, "a"), (9, "b")], "id long, name string")
    with pytest.raises(OptionError, match=r"2 with the key {'id': 9}"):
        complete_members(twice, dimension.path, key="id", surrogate="sk")
    null = spark.createDataFrame([(None, "a")], "id long, name string")
    with pytest.raises(OptionError, match=r"1 with the key {'id': None}; a null is no member's"):
        complete_members(null, dimension.path, key="id", surrogate="sk")
    spark.sql(f"UPDATE {dimension.name} SET sk = NULL WHERE id = 2")  # noqa: S608
    with pytest.raises(MembersError, match=r"{'id': 2} without a surrogate: sk is null"):
        members(dimension).fill(marked(spark, 2, 7), NOW)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("id long, sk int, inferred string", r"'inferred' of type string; .* boolean .* rename"),
        ("id long, sk int, __semistream_x int", r"'__semistream_x': names that begin .* rename it"),
    ],
)
def test_columns_of_a_dimension_that_would_be_overwritten_are_refused(
    spark: SparkSession, tmp_path: Path, columns: str, told: str
) -> None:
    require("delta")
    spark.createDataFrame([], columns).write.format("delta").save(str(tmp_path / "d"))
    with pytest.raises(SchemaError, match=told):
        Dimension(str(tmp_path / "d"), ("id",), "sk").open(spark)


def test_a_key_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """Such as those that statements have for a column or a table of their own."""
    require("delta")
    names = ("time", "count", "known", "top")
    key = ", ".join(f"`{name}` long" for name in names)
    frame = spark.createDataFrame([(1, 1, 1, 1, 10)], f"{key}, sk int")
    frame.write.format("delta").save(str(tmp_path / "d"))
    dimension = Dimension(str(tmp_path / "d"), names, "sk")
    dimension.open(spark)
    kinds = "a long, b long, c long, d long, p_sk int, _status string"
    batch = spark.createDataFrame([(5, 6, 7, 8, None, "absent")], kinds)
    on = dict(zip("abcd", names, strict=True))
    filled = Members(dimension, on, "p_sk", "_status").fill(add_batch_time(batch, NOW), NOW)
    assert [tuple(row)[:5] for row in filled.collect()] == [(5, 6, 7, 8, 11)]
    real = spark.createDataFrame([(6, 6, 6, 6)], key)
    complete_members(real, dimension.path, key=names, surrogate="sk")
    assert {row["sk"] for row in dimension.read(spark).collect()} == {10, 11, 12}


def test_a_key_that_the_dimension_cannot_hold_has_no_member(
    spark: SparkSession, tmp_path: Path
) -> None:
    require("delta")
    frame = spark.createDataFrame([(1, 10)], "id int, sk int")
    frame.write.format("delta").save(str(tmp_path / "small"))
    small = Dimension(str(tmp_path / "small"), ("id",), "sk")
    small.open(spark)
    rows = members(small).fill(marked(spark, 2**40, 5), NOW)
    assert surrogates(rows) == [(5, 11), (2**40, 0)]


def test_who_gives_up_does_not_wait_before() -> None:
    waits: list[float] = []

    def conflict() -> None:
        raise RuntimeError("DELTA_CONCURRENT_APPEND")

    with pytest.raises(MembersError, match="in each of 10 attempts"):
        _retry_conflicts(conflict, Dimension("products", ("id",), "sk"), waits.append)
    assert len(waits) == 9
