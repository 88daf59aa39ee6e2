"""What is measured on Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["DROPPED", "SparkGrid"]

DROPPED = 2
"""The first batches of a query, in which code is still compiled, are not counted."""


@dataclass(frozen=True)
class SparkGrid:
    """What is measured."""

    rows: tuple[int, ...] = (2_000_000, 10_000_000)
    batch_rows: tuple[int, ...] = (100_000, 1_000_000)
    hows: tuple[str, ...] = ("left", "inner")
    joins: tuple[str, ...] = ("default", "shuffle-hash", "broadcast")
    """Spark's own."""
    share: float = 0.05
    """The budget, as a share of the master's bytes."""
    exponent: float = 1.0
    rounds: int = 3
    """In each every system has its turn, in an order that is drawn, so that noise hits all."""
    seconds: float = 3.0
    """About what the counted batches of a round take."""
    limit: float = 90.0
    """Seconds after which a query is ended; what it has done until then counts."""
    most_batches: int = 14
    """Of a round; of batches of 1M rows there are no more than 8M rows."""
    single_rounds: int = 4
    single_batches: int = 7
    """Batches of a single row in a round, `DROPPED` of which are not counted."""
    partitions: int = 8
    exponents: tuple[float, ...] = (1.0, 1.5)
    reads: tuple[str, ...] = ("mapped", "direct")
    routed_batches: int = 5
    workers: tuple[int, ...] = (2, 8)
    warm_batches: int = 20
    later_batches: int = 4
    """After the pause, and again after a worker was killed."""
    pause: float = 130.0
    """Seconds: a Python worker that rests for a minute is ended by Spark."""
    driver_memory: str = "4g"
    seed: int = 0

    @property
    def cells(self) -> tuple[tuple[int, str, int], ...]:
        """All settings of rates: rows of the master, how, and rows of a batch."""
        return tuple((r, how, b) for r in self.rows for how in self.hows for b in self.batch_rows)

    def batches_of(self, batch_rows: int) -> int:
        """Give how many batches of this size there are in files."""
        return max(DROPPED + 1, min(self.most_batches, 8_000_000 // batch_rows))

    def quick(self) -> SparkGrid:
        """Give a small version, to try it: its figures mean little."""
        return replace(
            self,
            rows=(min(self.rows),),
            rounds=2,
            seconds=1.0,
            limit=30.0,
            most_batches=5,
            single_rounds=2,
            single_batches=5,
            routed_batches=3,
            warm_batches=5,
            later_batches=2,
            pause=1.0,
        )
