"""Reports of a running pipeline, one a batch."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from semistream.spark.cluster.executors import context_of
from semistream.spark.metrics.listener import add_reader, has_reported, remove_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from semistream.spark.metrics.report import BatchMetrics

__all__ = ["POLL_SECONDS", "Metrics", "Reports"]

POLL_SECONDS = 0.2  # short beside a micro-batch, long beside what a look costs
_PATIENCE_SECONDS = 5.0  # Spark's listeners may be behind; a report must not wait for ever


class Metrics:
    """Collects what the enrichments of a query report, batch by batch, until it is closed."""

    def __init__(self, spark: SparkSession, steps: int) -> None:
        self._spark = spark
        self._taken: list[BatchMetrics] = []
        self._reader = self._taken.append
        # Over Spark Connect workers have no way to report; what Spark observes must do.
        self._watches = bool(steps) and context_of(spark) is not None
        if self._watches:
            add_reader(spark, self._reader)

    def close(self) -> None:
        """Collect no more."""
        if self._watches:
            remove_reader(self._spark, self._reader)

    def has(self, query: str, batch: int) -> bool:
        """Return whether all is known of a batch: Spark reports its end in another thread."""
        return not self._watches or has_reported(self._spark, query, batch)

    def of(self, query: str, batch: int) -> dict[str, dict[str, Any]]:
        """Return what the enrichments of the query did in a batch, by their names."""
        for metrics in [m for m in self._taken if m.query != query or m.batch < batch]:
            self._taken.remove(metrics)  # others may be added meanwhile
        return {
            m.name: {
                "rows": m.rows,
                "matched": m.matched,
                "absent": m.absent,
                "null_keys": m.null_keys,
                **m.missing,
                "hit_rate": round(m.hit_rate, 4),
                "pages_read": m.counters["pages_read"],
                "bytes_read": m.counters["bytes_read"],
                "memory": m.memory,
                "budget": m.budget,
            }
            for m in self._taken
            if (m.query, m.batch) == (query, batch)
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
        """The row to which a generator has come."""

    def look(self) -> None:
        """Report the batches that have ended."""
        for each in self._query.recentProgress:
            progress = json.loads(each.json)
            if progress["batchId"] > self._last and "addBatch" in progress["durationMs"]:
                self._last = progress["batchId"]
                end = progress["sources"][0].get("endOffset")
                if isinstance(end, dict):
                    self.row = max(self.row, int(end.get("row", 0)))
                self._waiting.append((time.monotonic() + _PATIENCE_SECONDS, progress))
        self._report()

    def finish(self) -> None:
        """Report the remaining batches."""
        self.look()
        while self._waiting:
            time.sleep(POLL_SECONDS)
            self._report()

    def _report(self) -> None:
        """Report batches as soon as their metrics are known, or after some seconds without them."""
        while self._waiting:
            until, progress = self._waiting[0]
            batch = progress["id"], progress["batchId"]
            if self._metrics and not self._metrics.has(*batch) and time.monotonic() < until:
                return
            steps = self._metrics.of(*batch) if self._metrics else {}
            self._seen(_report(progress, steps))
            del self._waiting[0]


def _report(progress: dict[str, Any], steps: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a batch; without metrics, with what Spark observed of enrichments."""
    seconds, rows = (
        progress["durationMs"].get("triggerExecution", 0) / 1000,
        progress["numInputRows"],
    )
    observed = {
        name.removeprefix("semistream."): value
        for name, value in (progress.get("observedMetrics") or {}).items()
        if name.startswith("semistream.")
    }
    return {
        "batch": progress["batchId"],
        "time": progress["timestamp"],
        "rows": rows,
        "seconds": seconds,
        "rows_per_second": round(rows / seconds, 1) if seconds else None,
        "enrich": steps or observed,
    }
