"""Enrichment from real databases on Spark: what comes out, what is held, what goes wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.spark.watch import BatchMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from parts.databases import Server

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("spark")]

KEYS = 3000
PRODUCTS = pa.table(
    {
        "product_id": pa.array(np.arange(KEYS) * 2),
        "name": pa.array([None if i % 50 == 7 else f"product {i}" for i in range(KEYS)]),
        "price": pa.array(np.arange(KEYS) / 4),
        "brand": pa.array(np.arange(KEYS) % 40, pa.int32()),
    }
)


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    found.load("products", PRODUCTS, key="product_id")
    return found


def sales(rows: int = 4000, seed: int = 1) -> pa.Table:
    """Keys by a skewed law, odd ones absent, a few null."""
    rng = np.random.default_rng(seed)
    keys = np.minimum(rng.zipf(1.3, rows), 2 * KEYS + 50)
    return pa.table(
        {
            "sale": pa.array(np.arange(rows) + seed * 10**6),
            "product_id": pa.array(keys, mask=rng.random(rows) < 0.01),
        }
    )


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.collect()), key=repr)


def opened(server: Server, **options: Any) -> Any:
    return ss.open_master(
        server.url(options.pop("port", None)), table="products", key="product_id", **options
    )


@pytest.mark.parametrize("transfer", ["keys", "rows"])
def test_all_joins_agree_with_sparks_own(
    spark: SparkSession, server: Server, transfer: str
) -> None:
    stream = spark.createDataFrame(sales()).repartition(3).cache()
    products, master = spark.createDataFrame(PRODUCTS), opened(server, ttl=60)
    for how in ("inner", "left", "semi", "anti"):
        mine = ss.enrich(stream, master, on="product_id", how=how, memory="4MB", transfer=transfer)
        theirs = stream.join(products, "product_id", how).select(*mine.columns)
        assert rows_of(mine) == rows_of(theirs), how
