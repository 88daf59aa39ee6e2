"""The demonstration's steps: build the master, stream the sales, verify the warehouse."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F  # noqa: N812 - as everyone has it

from semistream.api import build_master, enrich, watch
from semistream.cli.demo.star import PRODUCT, SALE, products, write_sales
from semistream.errors import MasterError, OptionError, SemistreamError
from semistream.master import open_master

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from semistream.master import FileMaster
    from semistream.spark.metrics.report import BatchMetrics

__all__ = ["Demo", "VerificationError"]

_FILES = 20
_FILES_A_BATCH = 2  # ten micro-batches: enough to see the cache warm up
_PATIENCE = 10.0  # seconds for Spark's last report
_MARKER = ".semistream-demo"
_OURS = frozenset(
    {_MARKER, "products.parquet", "products.master", "sales", "checkpoint", "warehouse", "run.png"}
)
"""All that a demonstration leaves in its folder."""


class VerificationError(SemistreamError):
    """The warehouse does not hold what a batch join of the same data gives."""


@dataclass(frozen=True)
class Demo:
    """Where it runs, and how large it is."""

    folder: Path
    products: int
    sales: int
    share: float
    """The part of the master that may be in memory."""
    read: str

    def prepare(self) -> None:
        """Empty the folder, if all that is in it was made by a demonstration."""
        names = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
        strays = names - _OURS if _MARKER in names else names
        if strays:
            msg = (
                f"{self.folder} would be emptied, and it holds {min(strays)!r}, which no "
                "demonstration is known to have made; name another folder with --folder, or "
                "remove this one first"
            )
            raise OptionError(msg)
        if names:
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _MARKER).write_text("made by semistream demo, which will remove it again\n")

    def build(self, done: Callable[[int], None]) -> FileMaster:
        """Write the dimension as Parquet, for the check at the end, and build the master of it."""
        table = self.folder / "products.parquet"
        with pq.ParquetWriter(table, PRODUCT) as writer:

            def passing() -> Iterator[pa.RecordBatch]:
                rows = 0
                for batch in products(self.products):
                    writer.write_batch(batch)
                    rows += batch.num_rows
                    done(rows)
                    yield batch

            source = pa.RecordBatchReader.from_batches(PRODUCT, passing())
            build_master(source, self._master, key="product_id")
        try:
            return open_master(self._master, self.read)
        except MasterError:
            if self.read == "mapped":
                raise
            return open_master(self._master)  # a file system without direct reads

    @property
    def _master(self) -> Path:
        return self.folder / "products.master"

    def write_sales(self, done: Callable[[int], None]) -> None:
        """Write the stream."""
        write_sales(self.folder / "sales", self.sales, self.products, _FILES, done)

    def memory(self, master: FileMaster) -> int:
        """Return the budget in bytes."""
        return int(self.share * master.statistics.bytes)

    def stream(
        self, spark: SparkSession, master: FileMaster, done: Callable[[BatchMetrics], None]
    ) -> float:
        """Stream all sales into the warehouse; return the seconds that it took."""
        watch(spark, done)
        source = spark.readStream.schema(SALE).option("maxFilesPerTrigger", _FILES_A_BATCH)
        facts = self.facts(source.parquet(str(self.folder / "sales")), master)
        start = time.monotonic()
        query = (
            facts.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start(str(self.folder / "warehouse"))
        )
        query.awaitTermination()
        return time.monotonic() - start

    @staticmethod
    def wait_for(batches: list[BatchMetrics], sales: int) -> None:
        """Wait for the last reports: Spark tells of a batch a moment after it is done."""
        end = time.monotonic() + _PATIENCE
        while sum(m.rows for m in batches) < sales and time.monotonic() < end:
            time.sleep(0.05)

    def facts(self, sales: DataFrame, master: FileMaster) -> DataFrame:
        """Replace the natural key by the surrogate key, and add what the sale was worth."""
        return _fact_columns(
            enrich(
                sales,
                master,
                on="product_id",
                how="left",
                select=["product_key", "price", "category"],
                memory=self.memory(master),
            )
        )

    def verify(self, spark: SparkSession) -> int:
        """Compare the warehouse with a batch join by Spark itself; return how many rows it has."""
        dimension = spark.read.parquet(str(self.folder / "products.parquet"))
        sales = spark.read.schema(SALE).parquet(str(self.folder / "sales"))
        wanted = _fact_columns(sales.join(dimension, "product_id", "left"))
        rows, digest = _fingerprint(spark.read.parquet(str(self.folder / "warehouse")))
        expected = _fingerprint(wanted)
        if (rows, digest) != expected:
            msg = (
                f"the warehouse holds {rows:,} rows (fingerprint {digest}), a batch join of "
                f"the same data gives {expected[0]:,} ({expected[1]}); this is a bug: please report"
            )
            raise VerificationError(msg)
        return rows


def _fact_columns(joined: DataFrame) -> DataFrame:
    amount = F.round(F.col("price") * F.col("quantity"), 2).alias("amount")
    return joined.select("sale_id", "product_key", "store_id", "category", "quantity", amount)


def _fingerprint(df: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and a sum over hashes of all their columns."""
    hashed = F.sum(F.xxhash64(*df.columns).cast("decimal(38,0)"))
    count, total = df.agg(F.count(F.lit(1)), hashed).first() or (0, 0)
    return int(count), int(total or 0)
