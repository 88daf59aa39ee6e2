"""Metrics of enrichments, micro-batch by micro-batch: to the log, and to whoever asked for them."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from semistream.errors import SemistreamError
from semistream.metrics import Metrics
from semistream.spark.cluster.context_state import EnrichmentFacts, state_of
from semistream.spark.cluster.executors import context_of
from semistream.spark.lookup.outcome import COUNTED
from semistream.spark.lookup.reports import Reports
from semistream.spark.lookup.snapshot import renew_holds
from semistream.spark.metrics.prometheus import serve_metrics
from semistream.spark.metrics.report import BatchMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

    from semistream.spark.cluster.context_state import ContextState
    from semistream.spark.lookup.job import Job
    from semistream.spark.lookup.reports import Report
    from semistream.spark.lookup.worker import Channel

    Reader = Callable[[BatchMetrics], None]

__all__ = [
    "add_reader",
    "has_reported",
    "note_enrichment",
    "note_written",
    "remove_reader",
    "report_channel",
]

log = logging.getLogger(__name__)


def note_enrichment(state: ContextState, job: Job, java_bytes: int | None) -> None:
    """Note how many bytes Java holds for an enrichment; None if its look-ups are not Java's."""
    state.enrichments[job.name] = EnrichmentFacts(job.how, java_bytes, job.memory)


def note_written(
    spark: SparkSession, query: str, batch: int, written: dict[str, dict[str, int]]
) -> None:
    """Keep what a writer did with rows, by enrichment, until Spark reports the batch's end."""
    state_of(spark).written[query, batch] = written


def report_channel(df: DataFrame) -> Channel:
    """Return the channel on which tasks report to this driver; over Spark Connect there is none."""
    context = context_of(df.sparkSession)
    if context is None:
        return None
    state = state_of(df.sparkSession)
    if state.channel is None:
        state.channel = context.accumulator({}, Reports())
    if df.isStreaming:
        _listener(df.sparkSession)
    channel: Channel = state.channel
    return channel


def _listener(spark: SparkSession) -> _Listener:
    state = state_of(spark)
    if spark not in state.listeners:
        state.listeners[spark] = _Listener(state)
        spark.streams.addListener(state.listeners[spark])
    listener: _Listener = state.listeners[spark]
    return listener


def add_reader(
    spark: SparkSession,
    each: Reader | None,
    prometheus: int | None = None,
    address: str = "127.0.0.1",
) -> None:
    """Pass every micro-batch's metrics to a callback, or to Prometheus."""
    if report_channel(spark.range(0)) is None:
        msg = "over Spark Connect workers cannot report; see the observed metrics of lastProgress"
        raise SemistreamError(msg)
    readers = _listener(spark).readers
    if each is not None:
        readers.append(each)
    if prometheus is not None:
        readers.append(serve_metrics(prometheus, address))


def remove_reader(spark: SparkSession, each: Reader) -> None:
    """Pass the callback no more metrics."""
    if listener := state_of(spark).listeners.get(spark):
        # Another list: Spark may be reporting progress just now.
        listener.readers = [reader for reader in listener.readers if reader is not each]


def has_reported(spark: SparkSession, query: str, batch: int) -> bool:
    """Return whether readers have all metrics of this micro-batch."""
    listener = state_of(spark).listeners.get(spark)
    return listener is not None and listener.last.get(query, -1) >= batch


class _Listener(StreamingQueryListener):
    """Combines what tasks reported with what Spark reports of a micro-batch."""

    def __init__(self, state: ContextState) -> None:
        self._state = state
        self.readers: list[Reader] = [lambda m: log.info("%s", m)]
        self.last: dict[str, int] = {}
        """The last micro-batch of each query whose metrics readers have."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        for metrics in self._metrics(event.progress):
            for reader in self.readers:
                reader(metrics)
        self.last[str(event.progress.id)] = event.progress.batchId

    def _metrics(self, progress: StreamingQueryProgress) -> Iterator[BatchMetrics]:
        """Return what enrichments did; one may only have rows that have waited."""
        query, batch, observed = str(progress.id), progress.batchId, progress.observedMetrics
        seconds = progress.durationMs.get("triggerExecution", 0) / 1000
        written = self._state.written.pop((query, batch), {})
        for metrics in (
            *self._of_python(query, batch, seconds),
            *self._of_java(query, batch, seconds, observed),
        ):
            row = observed.get(f"semistream.{metrics.name}")
            if observed and row is None:
                continue  # of a run before, in which this batch failed; or of rows that have waited
            counts = row.asDict() if row else {}
            missing = {what: counts[what] for what in COUNTED if what in counts}
            missing |= written.pop(metrics.name, {})
            counters = metrics.counters | self._rows_out(metrics.name, counts)
            yield replace(metrics, counters=counters, missing=missing)
        for name, counts in written.items():
            yield BatchMetrics(query, batch, name, seconds, asdict(Metrics()), {}, 0, counts)

    def _of_python(self, query: str, batch: int, seconds: float) -> Iterator[BatchMetrics]:
        """Take the reports of a micro-batch out of the channel."""
        channel = self._state.channel
        reports: dict[Any, Report] = channel.value if channel else {}
        for key in [key for key in list(reports) if key[:2] == (query, str(batch))]:
            r = reports.pop(key)
            yield BatchMetrics(query, batch, key[2], seconds, r.counters, r.memory, r.budget)

    def _of_java(
        self, query: str, batch: int, seconds: float, observed: Mapping[str, Any]
    ) -> Iterator[BatchMetrics]:
        """Return what enrichments did whose look-ups are Java's: Spark has counted it."""
        for name, facts in list(self._state.enrichments.items()):
            row = observed.get(f"semistream.{name}")
            if facts.java_bytes is None or row is None:
                continue
            counters = Metrics(
                rows_in=row.rows,
                answered=row.rows,
                unmatchable=row.null_keys,
                null_keys=row.null_keys,
                filtered=row.null_keys,
                looked_up=row.matched + row.absent,
                absent=row.absent,
            ).as_dict()
            memory = {"host pages known": facts.java_bytes}
            yield BatchMetrics(query, batch, name, seconds, counters, memory, facts.budget)

    def _rows_out(self, name: str, counts: Mapping[str, int]) -> dict[str, int]:
        """Return how many rows came out, as Spark counted: what on_missing drops passes Python."""
        facts = self._state.enrichments.get(name)
        if not counts or facts is None:
            return {}
        if "rows_out" in counts:
            return {"rows_out": counts["rows_out"]}
        rows, matched = counts["rows"], counts["matched"]
        out = {"left": rows - counts.get("dropped", 0), "anti": rows - matched}
        return {"rows_out": out.get(facts.how, matched)}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802
        renew_holds(self._state)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass
