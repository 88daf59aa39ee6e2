"""Reports of tasks to the driver."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.accumulators import AccumulatorParam

__all__ = ["Key", "Report", "Reports"]

Key = tuple[str, str, str]
"""Query, micro-batch, enrichment; the first two are empty outside of streams."""

_KEPT = 256  # keys: those of many micro-batches; a listener takes them out as each ends


@dataclass(frozen=True)
class Report:
    """What one task did, or several together."""

    counters: dict[str, int]
    """`semistream.metrics.Metrics` by name, summed up."""
    memory: dict[str, int]
    """The most bytes that a task held of each component."""
    budget: int
    """Bytes that an executor may hold."""
    tasks: int = 1

    def __add__(self, other: Report) -> Report:
        """Return what both did.

        Examples
        --------
        >>> one = Report({"rows_in": 2}, {"window": 10}, 64)
        >>> one + Report({"rows_in": 3}, {"window": 5, "cache": 1}, 64)
        Report(counters={'rows_in': 5}, memory={'window': 10, 'cache': 1}, budget=64, tasks=2)
        """
        counters = dict(self.counters)
        for name, count in other.counters.items():
            counters[name] = counters.get(name, 0) + count
        memory = dict(self.memory)
        for name, size in other.memory.items():
            memory[name] = max(memory.get(name, 0), size)
        tasks = self.tasks + other.tasks
        return Report(counters, memory, max(self.budget, other.budget), tasks)


class Reports(AccumulatorParam[dict[Key, Report]]):
    """Adds reports up by key, and keeps the latest."""

    def zero(self, value: dict[Key, Report]) -> dict[Key, Report]:  # noqa: ARG002
        """Return no reports."""
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[Key, Report], value2: dict[Key, Report]
    ) -> dict[Key, Report]:
        """Add further reports to the first."""
        for key, report in value2.items():
            value1[key] = value1[key] + report if key in value1 else report
        for key in list(value1)[: max(0, len(value1) - _KEPT)]:
            del value1[key]
        return value1
