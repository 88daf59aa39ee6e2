"""A star schema in small: a product dimension with surrogate keys, and sales that name products."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.workloads import Zipf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

__all__ = ["PRODUCT", "SALE", "products", "write_sales"]

PRODUCT = pa.schema(
    [
        ("product_id", pa.int64()),  # natural: what the shops write
        ("product_key", pa.int64()),  # surrogate: what the warehouse knows
        ("price", pa.float64()),
        ("cost", pa.float64()),
        ("brand", pa.int32()),
        ("category", pa.int32()),
        ("supplier_key", pa.int64()),
        ("weight", pa.float64()),
        ("name", pa.string()),
    ]
)
SALE = "sale_id long, product_id long, store_id int, quantity int"
_STEP = 1 << 17  # rows a record batch: some 16 MB
_LABEL = "product {:>09d}, packed by the dozen, from aisle {:>05d}"


def products(count: int, seed: int = 0) -> pa.RecordBatchReader:
    """Return the dimension, some 120 bytes a row, in the order of its surrogate keys."""
    return pa.RecordBatchReader.from_batches(PRODUCT, _products(count, seed))


def _products(count: int, seed: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    natural = rng.permutation(count)
    for start in range(0, count, _STEP):
        ids = natural[start : start + _STEP]
        price = np.round(rng.gamma(2.0, 15.0, len(ids)) + 0.5, 2)
        columns = [
            ids,
            np.arange(start, start + len(ids)) + 1,
            price,
            np.round(price * rng.uniform(0.4, 0.8, len(ids)), 2),
            (ids % 1_009).astype(np.int32),
            (ids % 97).astype(np.int32),
            ids % 5_003,
            rng.random(len(ids)) * 20,
            [_LABEL.format(i, i % 40_009) for i in ids.tolist()],
        ]
        arrays = [pa.array(c, type=f.type) for c, f in zip(columns, PRODUCT, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=PRODUCT)


def write_sales(
    folder: Path, count: int, products: int, files: int, done: Callable[[int], None]
) -> None:
    """Write sales to files: products by Zipf's law, two in a hundred not known to the master."""
    folder.mkdir(parents=True)
    rng, zipf = np.random.default_rng(1), Zipf(products, 1.0)
    bounds = np.linspace(0, count, files + 1).astype(int).tolist()
    for number, (start, end) in enumerate(pairwise(bounds)):
        rows = end - start
        keys = zipf.sample(rows, rng)
        keys[rng.random(rows) < 0.02] += products
        sale = {
            "sale_id": np.arange(start, end),
            "product_id": keys,
            "store_id": rng.integers(0, 500, rows).astype(np.int32),
            "quantity": rng.geometric(0.5, rows).astype(np.int32),
        }
        pq.write_table(pa.table(sale), folder / f"sales-{number:04}.parquet")
        done(end)
