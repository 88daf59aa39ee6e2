"""What enrichments do, micro-batch by micro-batch: in the log, and for Prometheus."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from semistream.errors import SemistreamError
from semistream.metrics import Metrics
from semistream.spark.cluster.executors import context_of
from semistream.spark.lookup.outcome import COUNTED, WAITED
from semistream.spark.lookup.reports import Reports
from semistream.spark.lookup.snapshot import renew_holds
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

    from semistream.spark.lookup.job import Job
    from semistream.spark.lookup.reports import Report
    from semistream.spark.lookup.worker import Channel

__all__ = [
    "BatchMetrics",
    "add_reader",
    "note_enrichment",
    "remove_reader",
    "reports_of",
    "tell_written",
    "was_told",
]

log = logging.getLogger(__name__)

_CHANNELS: WeakKeyDictionary[SparkContext, Channel] = WeakKeyDictionary()
_LISTENERS: WeakKeyDictionary[SparkSession, _Listener] = WeakKeyDictionary()
_NOTED: dict[str, _Noted] = {}
_WRITTEN: dict[tuple[str, int], dict[str, dict[str, int]]] = {}
_HITS = ("cache_hits", "looked_up", "pinned_hits")


@dataclass(frozen=True)
class _Noted:
    """What the driver knows of an enrichment."""

    how: str
    held: int | None
    """Bytes that Java holds; None if its look-ups are not Java's."""
    budget: int


@dataclass(frozen=True)
class BatchMetrics:
    """What one enrichment did in one micro-batch."""

    query: str
    batch: int
    name: str
    """The enrichment's."""
    seconds: float
    """What the micro-batch took, all of it."""
    counters: dict[str, int]
    """As `Join.metrics` has them, summed up over tasks."""
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
        """The share of rows that were answered from memory, without reading for them."""
        return sum(self.counters[name] for name in _HITS) / max(1, self.rows)

    def held(self, tasks: int) -> int:
        """Give the most bytes that so many tasks, and what they share, can have held."""
        shared = sum(size for name, size in self.memory.items() if name.startswith("host "))
        return shared + tasks * (sum(self.memory.values()) - shared)

    def __str__(self) -> str:
        c, rate = self.counters, self.rows / max(self.seconds, 1e-9)
        return (
            f"batch {self.batch} {self.name}: {self.rows:,} rows ({rate:,.0f}/s), "
            f"{self.matched:,} matched, {self.absent:,} absent, {self._unusual}"
            f"{self.hit_rate:.1%} from memory, {c['pages_read']:,} pages "
            f"({format_bytes(c['bytes_read'])}) read, a task held "
            f"{format_bytes(sum(self.memory.values()))} of {format_bytes(self.budget)}"
        )

    @property
    def _unusual(self) -> str:
        told = {"null keys": self.null_keys, **self.missing}
        return "".join(
            f"{count:,} {what.replace('_', ' ')}, " for what, count in told.items() if count
        )


def tell_written(query: str, batch: int, written: Mapping[str, Mapping[str, int]]) -> None:
    """Keep what a writer did with rows, by enrichment, until Spark tells that the batch ended."""
    _WRITTEN[query, batch] = {name: dict(counts) for name, counts in written.items()}


def reports_of(df: DataFrame) -> Channel:
    """Give the channel on which tasks report to this driver; over Spark Connect there is none."""
    spark = df.sparkSession
    context = context_of(spark)
    if context is None:
        return None
    if context not in _CHANNELS:
        _CHANNELS[context] = context.accumulator({}, Reports())
    channel = _CHANNELS[context]
    if df.isStreaming:
        _listener(spark, channel)
    return channel


def note_enrichment(job: Job, held: int | None) -> None:
    """Note how many bytes Java holds for an enrichment; None if its look-ups are not Java's."""
    _NOTED[job.name] = _Noted(job.how, held, job.memory)


def _listener(spark: SparkSession, channel: Channel) -> _Listener:
    if spark not in _LISTENERS:
        _LISTENERS[spark] = _Listener(channel)
        spark.streams.addListener(_LISTENERS[spark])
    return _LISTENERS[spark]


def add_reader(
    spark: SparkSession,
    each: Callable[[BatchMetrics], None] | None,
    prometheus: int | None = None,
    address: str = "127.0.0.1",
) -> None:
    """Have every micro-batch's metrics given to a function, or to Prometheus."""
    channel = reports_of(spark.range(0))
    if channel is None:
        msg = "over Spark Connect workers cannot report; see the observed metrics of lastProgress"
        raise SemistreamError(msg)
    listener = _listener(spark, channel)
    if each is not None:
        listener.readers.append(each)
    if prometheus is not None:
        listener.readers.append(_prometheus(prometheus, address))


def was_told(spark: SparkSession, query: str, batch: int) -> bool:
    """Return whether readers have been given all metrics of this micro-batch."""
    listener = _LISTENERS.get(spark)
    return listener is not None and listener.last.get(query, -1) >= batch


def remove_reader(spark: SparkSession, each: Callable[[BatchMetrics], None]) -> None:
    """Give the function no more metrics."""
    if listener := _LISTENERS.get(spark):
        # Another list: Spark may be telling of progress just now.
        listener.readers = [reader for reader in listener.readers if reader is not each]


class _Listener(StreamingQueryListener):
    """Puts what tasks reported together with what Spark tells of a micro-batch."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.readers: list[Callable[[BatchMetrics], None]] = [lambda m: log.info("%s", m)]
        self.last: dict[str, int] = {}
        """The last micro-batch of each query of which readers were told."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        for metrics in self._told(event.progress):
            for reader in self.readers:
                reader(metrics)
        self.last[str(event.progress.id)] = event.progress.batchId

    def _told(self, progress: StreamingQueryProgress) -> Iterator[BatchMetrics]:
        """Give what enrichments did; one may only have rows that have waited."""
        query, batch, observed = str(progress.id), progress.batchId, progress.observedMetrics
        seconds = progress.durationMs.get("triggerExecution", 0) / 1000
        written = _WRITTEN.pop((query, batch), {})
        for metrics in (
            *self._taken(query, batch, seconds),
            *_of_java(query, batch, seconds, observed),
        ):
            told = observed.get(f"semistream.{metrics.name}")
            if observed and told is None:
                continue  # of a run before, in which this batch failed; or of rows that have waited
            missing = {what: told[what] for what in COUNTED if told and what in told}
            counters = metrics.counters | _rows_out(metrics.name, told)
            missing |= written.pop(metrics.name, {})
            yield replace(metrics, counters=counters, missing=missing)
        for name, counts in written.items():
            yield BatchMetrics(query, batch, name, seconds, asdict(Metrics()), {}, 0, counts)

    def _taken(self, query: str, batch: int, seconds: float) -> Iterator[BatchMetrics]:
        """Take the reports of a micro-batch out of the channel."""
        reports: dict[Any, Report] = self._channel.value if self._channel else {}
        for key in [key for key in list(reports) if key[:2] == (query, str(batch))]:
            r = reports.pop(key)
            yield BatchMetrics(query, batch, key[2], seconds, r.counters, r.memory, r.budget)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802
        renew_holds()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def _of_java(
    query: str, batch: int, seconds: float, observed: Mapping[str, Any]
) -> Iterator[BatchMetrics]:
    """Give what enrichments did whose look-ups are Java's: Spark has counted it."""
    for name, noted in list(_NOTED.items()):
        if noted.held is None or (told := observed.get(f"semistream.{name}")) is None:
            continue
        counters = Metrics(
            rows_in=told.rows,
            answered=told.rows,
            unmatchable=told.null_keys,
            null_keys=told.null_keys,
            filtered=told.null_keys,
            looked_up=told.matched + told.absent,
            absent=told.absent,
        )
        memory = {"host pages known": noted.held}
        yield BatchMetrics(query, batch, name, seconds, counters.as_dict(), memory, noted.budget)


def _rows_out(name: str, told: Any) -> dict[str, int]:  # noqa: ANN401 - a Row of Spark's, or None
    """Return how many rows came out, as Spark has counted: what on_missing drops passes Python."""
    if not told or name not in _NOTED:
        return {}
    counts = told.asDict()
    if "rows_out" in counts:
        return {"rows_out": counts["rows_out"]}
    rows, matched = counts["rows"], counts["matched"]
    out = {"left": rows - counts.get("dropped", 0), "anti": rows - matched}
    return {"rows_out": out.get(_NOTED[name].how, matched)}


def _prometheus(port: int, address: str) -> Callable[[BatchMetrics], None]:
    """Serve metrics on a port of an interface; give what takes them in."""
    try:
        import prometheus_client as client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        msg = "Prometheus needs a client: pip install 'semistream[prometheus]'"
        raise SemistreamError(msg) from None
    registry = client.CollectorRegistry()
    labels = ("query", "enrichment")
    counters = client.Counter("semistream", "Events by kind.", (*labels, "what"), registry=registry)
    memory = client.Gauge(
        "semistream_task_bytes",
        "Most bytes held by a task, by component.",
        (*labels, "component"),
        registry=registry,
    )
    seconds = client.Gauge(
        "semistream_batch_seconds", "Duration of the last micro-batch.", labels, registry=registry
    )
    waiting = client.Gauge(
        "semistream_waiting_rows",
        "Stream rows waiting for their master row.",
        labels,
        registry=registry,
    )
    server, _ = client.start_http_server(port, address, registry)
    log.info("metrics are served on %s, port %d", address, server.server_port)

    def take(metrics: BatchMetrics) -> None:
        told = (metrics.query, metrics.name)
        for name, count in metrics.counters.items():
            counters.labels(*told, name).inc(count)
        for name, size in metrics.memory.items():
            memory.labels(*told, name).set(size)
        for name, count in metrics.missing.items():
            if name == WAITED[-1]:
                waiting.labels(*told).set(count)
            else:
                counters.labels(*told, name).inc(count)
        seconds.labels(*told).set(metrics.seconds)

    return take
