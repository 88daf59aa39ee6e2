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
    share: float = 0.05
    """The budget, as a share of the master's bytes."""
    exponent: float = 1.0
    limit: float = 90.0
    """Seconds after which a query is ended; what it has done until then counts."""
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

    def quick(self) -> SparkGrid:
        """Give a small version, to try it: its figures mean little."""
        return replace(
            self,
            rows=(min(self.rows),),
            limit=30.0,
            single_rounds=2,
            single_batches=5,
            routed_batches=3,
            warm_batches=5,
            later_batches=2,
            pause=1.0,
        )
