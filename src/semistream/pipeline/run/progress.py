"""What a running pipeline reports, a batch at a time."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from semistream.spark.cluster.executors import context_of
from semistream.spark.metrics.watch import add_reader, remove_reader, was_told

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from semistream.spark.metrics.watch import BatchMetrics

__all__ = ["POLL_SECONDS", "Metrics", "Reports"]

POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0


class Metrics:
    """Takes what the enrichments of a query report, batch by batch, until it is closed."""

    def __init__(self, spark: SparkSession, steps: int) -> None:
        self._spark = spark
        self._taken: list[BatchMetrics] = []
        self._reader = self._taken.append
        # Over Spark Connect workers have no way to report; what Spark observes must do.
        self._watches = bool(steps) and context_of(spark) is not None
        if self._watches:
            add_reader(spark, self._reader)

    def close(self) -> None:
        """Take no more."""
        if self._watches:
            remove_reader(self._spark, self._reader)

    def has(self, query: str, batch: int) -> bool:
        """Return whether all is known of a batch: Spark tells of its end in another thread."""
        return not self._watches or was_told(self._spark, query, batch)

    def of(self, query: str, batch: int) -> dict[str, dict[str, Any]]:
        """Give what the enrichments of the query did in a batch, by their names."""
        for metrics in [m for m in self._taken if m.query != query or m.batch < batch]:
            self._taken.remove(metrics)  # others may be added meanwhile
        mine = [m for m in self._taken if (m.query, m.batch) == (query, batch)]
        return {m.name: _told(m) for m in mine}


def _told(metrics: BatchMetrics) -> dict[str, Any]:
    return {
        "rows": metrics.rows,
        "matched": metrics.matched,
        "absent": metrics.absent,
        "null_keys": metrics.null_keys,
        **metrics.missing,
        "hit_rate": round(metrics.hit_rate, 4),
        "pages_read": metrics.counters["pages_read"],
        "bytes_read": metrics.counters["bytes_read"],
        "memory": metrics.memory,
        "budget": metrics.budget,
    }


class Reports:
    """Turns Spark's progress into reports, each batch once."""

    def __init__(
        self,
        query: StreamingQuery,
        seen: Callable[[dict[str, Any]], None],
        metrics: Metrics | None,
    ) -> None:
        self._query, self._seen, self._metrics = query, seen, metrics
        self._last = -1
        self._waiting: list[tuple[float, dict[str, Any]]] = []
        self.row = 0

    def look(self) -> None:
        """Report the batches that have ended."""
        for progress in self._query.recentProgress:
            told = json.loads(progress.json)
            if told["batchId"] > self._last and "addBatch" in told["durationMs"]:
                self._last = told["batchId"]
                self.row = max(self.row, _row(told))
                self._waiting.append((time.monotonic() + _PATIENCE_SECONDS, told))
        self._report()

    def finish(self) -> None:
        """Report what is left."""
        self.look()
        while self._waiting:
            time.sleep(POLL_SECONDS)
            self._report()

    def _report(self) -> None:
        """Report batches as soon as their metrics are known, or after some seconds without them."""
        while self._waiting:
            until, told = self._waiting[0]
            query = told["id"], told["batchId"]
            if self._metrics and not self._metrics.has(*query) and time.monotonic() < until:
                return
            ours = self._metrics.of(*query) if self._metrics else {}
            self._seen(_report(told, ours or _observed(told)))
            del self._waiting[0]


def _row(told: dict[str, Any]) -> int:
    end = told["sources"][0].get("endOffset")
    return int(end["row"]) if isinstance(end, dict) and "row" in end else 0


def _report(told: dict[str, Any], steps: dict[str, Any]) -> dict[str, Any]:
    seconds = told["durationMs"].get("triggerExecution", 0) / 1000
    return {
        "batch": told["batchId"],
        "time": told["timestamp"],
        "rows": told["numInputRows"],
        "seconds": seconds,
        "rows_per_second": round(told["numInputRows"] / seconds, 1) if seconds else None,
        "enrich": steps,
    }


def _observed(told: dict[str, Any]) -> dict[str, Any]:
    """Give what Spark itself observed of the enrichments."""
    found = told.get("observedMetrics") or {}
    ours = {name: value for name, value in found.items() if name.startswith("semistream.")}
    return {name.removeprefix("semistream."): value for name, value in ours.items()}
