"""The metrics of one enrichment in one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from semistream.units import format_bytes

__all__ = ["BatchMetrics"]

_HITS = ("cache_hits", "looked_up", "pinned_hits")


@dataclass(frozen=True)
class BatchMetrics:
    """What one enrichment did in one micro-batch."""

    query: str
    batch: int
    name: str
    """The enrichment's."""
    seconds: float
    """Duration of the whole micro-batch."""
    counters: dict[str, int]
    """As `Join.metrics` has them, summed over tasks."""
    memory: dict[str, int]
    """The most bytes that a task held, by component; those of the host are the same for all."""
    budget: int
    """Bytes that an executor may hold."""
    missing: dict[str, int] = field(default_factory=dict)
    """How many rows were ``dropped``, ``quarantined`` or left ``waiting``, as ``on_missing`` says;
    a row that an earlier enrichment has found to be missing counts there only. Of rows that have
    waited, how many ``came_out`` or were ``given_up``, and how many ``wait_now``. A null key does
    not wait. In a pipeline ``quarantined`` counts all rows that were written to the quarantine."""

    @property
    def rows(self) -> int:
        """Stream rows taken in."""
        return self.counters["rows_in"]

    @property
    def absent(self) -> int:
        """Stream rows with a key that the master does not have."""
        return self.counters["absent"] + self.counters["filtered"] - self.null_keys

    @property
    def null_keys(self) -> int:
        """Stream rows without a key."""
        return self.counters["null_keys"]

    @property
    def matched(self) -> int:
        """Stream rows with a match."""
        return self.rows - self.absent - self.null_keys

    @property
    def hit_rate(self) -> float:
        """The fraction of rows that were answered from memory, without reading for them."""
        return sum(self.counters[name] for name in _HITS) / max(1, self.rows)

    def held(self, tasks: int) -> int:
        """Return the most bytes that so many tasks, and what they share, can have held."""
        shared = sum(size for name, size in self.memory.items() if name.startswith("host "))
        return shared + tasks * (sum(self.memory.values()) - shared)

    def __str__(self) -> str:
        c, rate = self.counters, self.rows / max(self.seconds, 1e-9)
        unusual = {"null keys": self.null_keys, **self.missing}
        more = "".join(f"{n:,} {what.replace('_', ' ')}, " for what, n in unusual.items() if n)
        return (
            f"batch {self.batch} {self.name}: {self.rows:,} rows ({rate:,.0f}/s), "
            f"{self.matched:,} matched, {self.absent:,} absent, {more}"
            f"{self.hit_rate:.1%} from memory, {c['pages_read']:,} pages "
            f"({format_bytes(c['bytes_read'])}) read, a task held "
            f"{format_bytes(sum(self.memory.values()))} of {format_bytes(self.budget)}"
        )
