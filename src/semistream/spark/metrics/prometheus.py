"""Batch metrics for Prometheus."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from semistream.errors import SemistreamError
from semistream.spark.lookup.outcome import WAITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.spark.metrics.report import BatchMetrics

__all__ = ["serve_metrics"]

log = logging.getLogger(__name__)


def serve_metrics(port: int, address: str) -> Callable[[BatchMetrics], None]:
    """Serve metrics on a port of an interface; return the function that takes them in."""
    try:
        import prometheus_client as client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        msg = "Prometheus needs a client: pip install 'semistream[prometheus]'"
        raise SemistreamError(msg) from None
    registry, labels = client.CollectorRegistry(), ("query", "enrichment")

    def gauge(name: str, text: str, *more: str) -> client.Gauge:
        return client.Gauge(f"semistream_{name}", text, (*labels, *more), registry=registry)

    counters = client.Counter("semistream", "Events by kind.", (*labels, "what"), registry=registry)
    memory = gauge("task_bytes", "Most bytes held by a task, by component.", "component")
    seconds = gauge("batch_seconds", "Duration of the last micro-batch.")
    waiting = gauge("waiting_rows", "Stream rows waiting for their master row.")
    server, _ = client.start_http_server(port, address, registry)
    log.info("metrics are served on %s, port %d", address, server.server_port)

    def take(metrics: BatchMetrics) -> None:
        whose, missing = (metrics.query, metrics.name), dict(metrics.missing)
        if (now := missing.pop(WAITED[-1], None)) is not None:
            waiting.labels(*whose).set(now)
        for name, count in (metrics.counters | missing).items():
            counters.labels(*whose, name).inc(count)
        for name, size in metrics.memory.items():
            memory.labels(*whose, name).set(size)
        seconds.labels(*whose).set(metrics.seconds)

    return take
