"""What a `Join` drives: takes batches in, gives joined ones, says what it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from semistream.plan import MemoryUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from semistream.metrics import Metrics

__all__ = ["Closed", "Operator"]


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
        """Take a batch in, which came when it was ``arrived`` or now; give what becomes ready."""

    @abstractmethod
    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer every row that waits."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; rows that wait are lost."""

    @abstractmethod
    def tick(self) -> Iterator[pa.RecordBatch]:
        """Do what is due while nothing arrives."""


class Closed(Operator):
    """A join that is over: it has its counters, and nothing else."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    @property
    def memory_used(self) -> MemoryUse:
        """Nothing."""
        return MemoryUse()

    @property
    def waiting(self) -> int:
        """None."""
        return 0

    def check(self, batch: pa.RecordBatch) -> None:
        """Never called, as everything below: a join asks whether it is closed before."""
        raise AssertionError

    def run(self, batch: pa.RecordBatch, arrived: float | None = None) -> Iterator[pa.RecordBatch]:
        raise AssertionError

    def drain(self) -> Iterator[pa.RecordBatch]:
        raise AssertionError

    def tick(self) -> Iterator[pa.RecordBatch]:
        raise AssertionError

    def close(self) -> None:
        """Do nothing."""
