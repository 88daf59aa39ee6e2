"""What is compared on Spark: a way to join a stream with a table of products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.spark.live.store import store_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from benchmarks.spark.data import Products
    from benchmarks.spark.live.store import Store

__all__ = ["TASKS", "Setting", "System"]

TASKS = 2
"""Tasks that run at once, each with its part of the memory."""


@dataclass(frozen=True)
class Setting:
    """What a system joins with, and how."""

    products: Products
    how: str
    memory: int
    """Bytes for all tasks."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of `enrich`."""
    copy: str = ""
    """Another place of our master."""
    url: str = field(default="", repr=False)
    """A database that has the products as a table."""

    @classmethod
    def of(cls, products: Products, how: str, share: float, url: str = "") -> Setting:
        """Give the setting with a budget that is a share of the master's bytes."""
        return cls(products, how, int(share * products.bytes), url=url)

    @property
    def master(self) -> str:
        """Where our master is."""
        return self.copy or str(self.products.master())

    @property
    def store(self) -> Store:
        """The products in the database."""
        several = f"x{self.products.duplicates}" if self.products.duplicates > 1 else ""
        return store_of(self.url, f"semistream_bench_{self.products.rows}{several}")


def _nothing(at: Setting) -> None:
    """Need no preparation."""


def _complete(at: Setting) -> str:  # noqa: ARG001 - as others
    """Lack nothing."""
    return ""


@dataclass(frozen=True)
class System:
    """A way to join."""

    label: str
    join: Callable[[DataFrame, Setting], DataFrame]
    """Gives the stream's columns, then the master's without its key."""
    prepare: Callable[[Setting], None] = _nothing
    """Called once, in a process with a Spark session, before anything is timed."""
    missing: Callable[[Setting], str] = _complete
    """Says why it cannot run, nothing if it can."""
    in_batches: bool = False
    """Whether it looks at a micro-batch before it joins: it runs in a foreachBatch."""
    unique: bool = False
    """Whether it needs one row a key."""
    alone: bool = False
    """Whether it has a process of its own, for it may run out of memory."""

    def writer(self, df: DataFrame, at: Setting) -> DataStreamWriter:
        """Give the query, into no sink."""
        if not self.in_batches:
            return self.join(df, at).writeStream.format("noop")

        def write(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - as Spark calls it
            batch.persist()  # it is read twice
            self.join(batch, at).write.format("noop").mode("overwrite").save()
            batch.unpersist()

        return df.writeStream.foreachBatch(write)
