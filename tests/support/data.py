"""A stream and a master whose join is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream import build_master

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Data:
    """A stream of files, a master of which it misses some keys, and their reference join."""

    folder: Path
    files: int
    rows: int
    keys = 110_000
    """From which the stream's are drawn."""

    @property
    def stream(self) -> Path:
        return self.folder / "stream"

    @property
    def master(self) -> Path:
        return self.folder / "master"

    def write(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.stream.mkdir(parents=True)
        keys = np.arange(100_000)
        names = pa.array([f"product {key}" for key in keys])
        products = pa.table({"key": keys, "surrogate": keys * 7, "name": names})
        pq.write_table(products, self.folder / "products.parquet")
        build_master(products, self.master, key="key")
        for number in range(self.files):
            first = number * self.rows
            sale = {
                "sale": np.arange(first, first + self.rows),
                "key": rng.zipf(1.3, self.rows) % self.keys,
            }
            pq.write_table(pa.table(sale), self.stream / f"{number:04d}.parquet")

    def differences(self, result: Path) -> tuple[int, int]:
        """Count the rows that the result has too few, and too many."""
        expected = f"""
            SELECT sale, s.key, surrogate, name FROM '{self.stream}/*.parquet' s
            LEFT JOIN '{self.folder}/products.parquet' m ON s.key = m.key"""  # noqa: S608
        got = f"SELECT sale, key, surrogate, name FROM '{result}'"  # noqa: S608
        lost = duckdb.sql(f"SELECT count(*) FROM ({expected} EXCEPT ALL {got})").fetchall()  # noqa: S608
        more = duckdb.sql(f"SELECT count(*) FROM ({got} EXCEPT ALL {expected})").fetchall()  # noqa: S608
        return lost[0][0], more[0][0]


class LateData(Data):
    """One in a hundred products, and so about that many sales, comes before its master row."""

    keys = 100_000

    def bring(self, share: float) -> None:
        """Build the master with so many of the late ones, the whole of it at 1."""
        products = pq.read_table(self.folder / "products.parquet")
        keys = products["key"].to_numpy()
        late = keys % 100 == 7
        build_master(products.filter(~late | (keys < share * self.keys)), self.master, key="key")
