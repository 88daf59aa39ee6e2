"""The tables and streams of the benchmarks on Spark, as files that are made once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from semistream import build_master
from semistream.workloads import Stream, Zipf

KEY = "product_id"
ROW_BYTES = 120
STRIDE = 2  # absent keys lie between the master's
_NAME_BYTES = 64
_WORDS = (
    *("steel", "cotton", "organic", "classic", "bottle", "garden", "kitchen", "travel", "leather"),
    *("wireless", "ceramic", "vintage", "children", "outdoor", "natural", "premium", "compact"),
    *("blue", "black", "white", "green", "large", "small", "set of two", "refill", "folding"),
)
_CHUNK = 100_000  # rows of a batch
_FILE = 5 * _CHUNK  # rows of a Parquet file


@dataclass(frozen=True)
class Products:
    """A master of so many rows of 120 B, as ours and as Parquet."""

    rows: int
    folder: Path
    duplicates: int = 1
    """Rows of a key."""
    realistic: bool = False
    """Whether names are of words, and numbers as in a shop: such rows can be compressed."""

    page_bytes: str = "128KB"
    """Of our master."""

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return self.rows // self.duplicates

    @property
    def schema(self) -> pa.Schema:
        """The columns, the key first."""
        return _products(0, 0, 1, realistic=False).schema

    @property
    def bytes(self) -> int:
        """The size of R, of which budgets are shares."""
        return self.rows * ROW_BYTES

    def batches(self) -> pa.RecordBatchReader:
        """Make the rows, in order of their keys."""
        return pa.RecordBatchReader.from_batches(self.schema, self._made(0, self.rows))

    def _made(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for first in range(start, end, _CHUNK):
            end_of_chunk = min(first + _CHUNK, end)
            yield _products(first, end_of_chunk, self.duplicates, realistic=self.realistic)

    def path(self, kind: str) -> Path:
        """Return where the master of a kind of store is, or will be."""
        several = f"x{self.duplicates}" if self.duplicates > 1 else ""
        several += "-realistic" if self.realistic else ""
        return self.folder / f"products-{self.rows}{several}.{kind}"

    def master(self) -> Path:
        """Build our master, unless it is there already; return its path."""
        own = "" if self.page_bytes == "128KB" else f"{self.page_bytes}."
        path = self.path(f"{own}master")
        if not (path / "manifest.json").exists():
            build_master(self.batches(), path, key=KEY, page_bytes=self.page_bytes)
        return path

    def parquet(self) -> Path:
        """Write the same rows as Parquet, unless they are there already; return the path."""
        path = self.path("parquet")
        if not path.exists():
            with whole_folder(path) as new:
                for number, start in enumerate(range(0, self.rows, _FILE)):
                    rows = self._made(start, min(start + _FILE, self.rows))
                    pq.write_table(pa.Table.from_batches(rows), new / f"{number:05}.parquet")
        return path


def _products(start: int, end: int, duplicates: int, *, realistic: bool) -> pa.RecordBatch:
    """Make rows: a function of their numbers, if chunks are always cut at the same places."""
    rng, count = np.random.default_rng([1, start]), end - start
    columns = (_realistic if realistic else _random)(rng, count)
    numbers = np.arange(start, end)
    keys = {KEY: numbers // duplicates * STRIDE, "surrogate": numbers + 10**9}
    return pa.RecordBatch.from_pydict(keys | columns)


def _random(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Make columns that nothing can compress."""
    letters = rng.integers(97, 123, (count, _NAME_BYTES), np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * _NAME_BYTES
    name = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
    return {
        "price": rng.integers(0, 100_000, count) / 100,
        "cost": rng.integers(0, 100_000, count) / 100,
        "category": rng.integers(0, 100, count, np.int32),
        "brand": rng.integers(0, 1_000, count, np.int32),
        "supplier": rng.integers(0, 10**6, count),
        "weight": rng.random(count),
        "name": name,
    }


def _realistic(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Make columns as a shop has them: some values far more often than others, names of words.

    Of the same types, and on average about as long, as random ones.
    """
    price = np.round(rng.lognormal(3.0, 1.0, count)) + 0.99
    words = [pa.array(_WORDS).take(_often(rng, count, len(_WORDS))) for _ in range(8)]
    size = pa.array(rng.integers(1, 100, count) * 50).cast(pa.string())
    return {
        "price": price,
        "cost": np.round(price * rng.choice([0.5, 0.6, 0.75], count), 2),
        "category": _often(rng, count, 100).astype(np.int32),
        "brand": _often(rng, count, 1_000).astype(np.int32),
        "supplier": _often(rng, count, 10_000),
        "weight": rng.integers(1, 2_000, count) / 100,
        "name": pc.binary_join_element_wise(*words, size, "ml", " "),
    }


def _often(rng: np.random.Generator, count: int, values: int) -> NDArray[np.int64]:
    """Draw numbers below ``values``, small ones more often."""
    return (values * rng.random(count) ** 3).astype(np.int64)


@dataclass(frozen=True)
class Batches:
    """Some micro-batches of a stream in files."""

    folder: Path
    files: int
    """To a micro-batch."""
    count: int
    start: int = 0

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        end = self.start + self.count
        return sorted(self.folder.iterdir())[self.start * self.files : end * self.files]


@dataclass(frozen=True)
class Sales:
    """A stream of rows of 20 B in Parquet files, some to a micro-batch."""

    keys: int
    exponent: float
    batch_rows: int
    batches: int
    files: int = 2
    """To a micro-batch, of which each is read by a task of its own."""
    absent: float = 0.0

    def prepare(self, folder: Path) -> Batches:
        """Write the files, unless they are there already."""
        kind = f"{self.keys}-{self.exponent:g}-{self.absent:g}"
        path = folder / f"sales-{kind}-{self.batch_rows}x{self.batches}-{self.files}"
        if not path.exists():
            with whole_folder(path) as new:
                self._write(new)
        return Batches(path, self.files, self.batches)

    def _write(self, folder: Path) -> None:
        zipf = Zipf(self.keys, self.exponent)
        stream = Stream(zipf, absent=self.absent, stride=STRIDE)
        in_file = max(1, self.batch_rows // self.files)
        for number, batch in enumerate(
            stream.batches(in_file * self.files * self.batches, in_file)
        ):
            file = folder / f"{number:05}.parquet"
            table = pa.Table.from_batches([batch])
            pq.write_table(table.rename_columns([KEY, *table.column_names[1:]]), file)
            os.utime(file, (10**9 + number,) * 2)  # Spark takes files in order of their times


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Return a folder to write; it gets its name when the context ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        yield new
        new.rename(path)


@contextmanager
def cold_copy(master: Path) -> Iterator[Path]:
    """Return the same master under another name, for which no host holds anything warm."""
    with tempfile.TemporaryDirectory(dir=master.parent) as scratch:
        path = Path(scratch) / "products.master"
        shutil.copytree(master, path, copy_function=os.link)
        yield path
