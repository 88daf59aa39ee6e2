"""Columns with the names of those that an enrichment adds on its way: all are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import semistream as ss
from semistream.hotset import HostShare
from semistream.names import unused
from support.frames import rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 50
NAMES = ["__partition", "__answer", "__Place", "__row", "__found", "__born", "__semistream"]
NAMES += ["__semistream_place", "__semistream_row"]
WAYS = [
    {"transfer": "none"},
    {"transfer": "none", "partition": "key"},
    {"transfer": "keys"},
    {"transfer": "rows", "partition": "key"},
    {"transfer": "rows", "status": "told"},
    {"transfer": "keys", "status": "told"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    table = pa.table({"k": range(ROWS), **{f"{name}_": range(ROWS) for name in NAMES}})
    path = tmp_path_factory.mktemp("names")
    ss.build_master(table, path / "like", key="k")
    ss.build_master(
        table.rename_columns(["__row", *table.column_names[1:]]), path / "m", key="__row"
    )
    return path


def test_enrich_keeps_columns_of_any_name(spark: SparkSession, folder) -> None:
    """In the stream, in the master, and as the key of both."""
    numbers = [f"id * {i + 2} AS `{name}`" for i, name in enumerate(NAMES)]
    stream = spark.range(0, 5, 1, 1).selectExpr(*numbers).withColumnRenamed("__row", "__ROW")
    out = {}
    for master, key in (("like", {"__ROW": "k"}), ("m", {"__ROW": "__row"})):
        for way in WAYS:
            wish = {"how": "left", "memory": "16MB", "check": False, **way}
            found = ss.enrich(stream, folder / master, on=key, **wish)
            names = [*stream.columns, *(f"{name}_" for name in NAMES), *_status(way)]
            assert found.columns == names, way
            out[master, str(way)] = found
    for case, rows in rows_of_each(out).items():
        for id_, row in enumerate(sorted(rows)):
            wanted = [id_ * (i + 2) for i in range(len(NAMES))]
            assert list(row[: len(NAMES)]) == wanted, case
            assert list(row[len(NAMES) : 2 * len(NAMES)]) == [wanted[3]] * len(NAMES), case
        assert len(rows) == 5, case


def _status(way) -> list[str]:
    return ["told"] if "status" in way else []


def test_joins_keep_columns_of_any_name(folder, tmp_path) -> None:
    batch = pa.record_batch({name: range(5) for name in NAMES})
    for shared in (None, HostShare(tmp_path, 2)):
        join = ss.Join(folder / "like", batch.schema, on={"__row": "k"}, shared=shared)
        [row, *_] = [r for out in (*join.offer(batch), *join.drain()) for r in out.to_pylist()]
        assert row == dict.fromkeys(join.schema.names, 0)


def test_a_name_is_drawn_from_the_columns_alone() -> None:
    assert unused("__row", ["__Row", "x", "__row_"]) == "__row__"
    assert unused("__row", ["x"]) == "__row"
