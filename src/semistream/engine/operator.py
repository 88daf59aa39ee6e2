"""The interface of a running join, which `Join` drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from semistream.engine.plan import MemoryUse
    from semistream.metrics import Metrics

__all__ = ["Operator"]


class Operator(ABC):
    """A running join: one engine, or several behind a router.

    The iterators are read to their end, one after the other, in the order in which they were made.
    """

    metrics: Metrics
    """What was done so far."""

    @property
    @abstractmethod
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many rows wait for their page."""

    @abstractmethod
    def check(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch with a row that could not be held, before any of it is taken."""

    @abstractmethod
    def run(self, batch: pa.RecordBatch, arrived: float | None = None) -> Iterator[pa.RecordBatch]:
        """Take in a batch that ``arrived`` then, or now; yield what becomes ready."""

    @abstractmethod
    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer every row that waits."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; rows that wait are lost."""

    @abstractmethod
    def tick(self) -> Iterator[pa.RecordBatch]:
        """Do what is due while nothing arrives."""
