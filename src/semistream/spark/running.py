"""A running pipeline: a report a batch, and a clean end."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from semistream.errors import SemistreamError
from semistream.pipeline.ends import GeneratorSource
from semistream.pipeline.model import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pyspark.sql.streaming.query import StreamingQuery

    from semistream.pipeline import Pipeline

__all__ = ["Ending", "QueryFailedError", "follow", "last_row", "stop_signals"]

_POLL_SECONDS = 0.3


class QueryFailedError(SemistreamError, RuntimeError):
    """A query met an error while it ran; its checkpoint is as good as before."""


@dataclass
class Ending:
    """Asks a run to end; signals set it."""

    asked: threading.Event = field(default_factory=threading.Event)
    by: str = ""

    def ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler has it
        """Take a signal."""
        self.by = signal.Signals(number).name
        self.asked.set()


@contextmanager
def stop_signals(ending: Ending) -> Iterator[None]:
    """Let SIGINT (Ctrl-C) and SIGTERM end the run instead of the process; not outside its thread.

    Spark sets a handler of its own when a session starts: enter this afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.signal(each, ending.ask) for each in wanted}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def last_row(pipeline: Pipeline, once: bool) -> int | None:
    """Give the row at which a run with a generator has done what is there, or None.

    A generator without end has always more; a run that is to end is content with one batch of it.
    """
    source = pipeline.source
    if not isinstance(source, GeneratorSource) or not (once or pipeline.trigger == NOW):
        return None
    return source.rows or 1


def follow(
    query: StreamingQuery,
    seen: Callable[[dict[str, Any]], None],
    ending: Ending,
    last_row: int | None = None,
) -> bool:
    """Wait for a query's end; call ``seen`` with a report of each batch.

    Parameters
    ----------
    query
        The running query.
    seen
        Takes a report: batch, rows, seconds, and what was observed.
    ending
        Ends the query when it is asked.
    last_row
        End when the generator has come to this row.

    Returns
    -------
    bool
        True if the query came to its end, False if it was asked to end.
    """
    reports = _Reports(seen)
    try:
        while query.isActive and not ending.asked.is_set():
            query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type] # part of a second is fine
            reports.of(query)
            if last_row is not None and reports.row >= last_row:
                query.stop()
        if query.isActive:
            query.stop()
        reports.of(query)
    except PySparkException as error:
        # Workers take the signal of a terminal too: a batch may fail before it is stopped.
        if not ending.asked.is_set():
            raise QueryFailedError(_cause(error)) from error
    return not ending.asked.is_set()


def _cause(error: PySparkException) -> str:
    """Give the lines of an error that say something: the last error of Python's, or the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "semistream.errors." in line or "Error: " in line]
    return (ours or lines or [repr(error)])[-1 if ours else 0]


class _Reports:
    """Turns Spark's progress into reports, each batch once."""

    def __init__(self, seen: Callable[[dict[str, Any]], None]) -> None:
        self._seen = seen
        self._last = -1
        self.row = 0

    def of(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            told = json.loads(progress.json)
            if told["batchId"] > self._last and "addBatch" in told["durationMs"]:
                self._last = told["batchId"]
                self.row = max(self.row, _row(told))
                self._seen(_report(told))


def _row(told: dict[str, Any]) -> int:
    end = told["sources"][0].get("endOffset")
    return int(end["row"]) if isinstance(end, dict) and "row" in end else 0


def _report(told: dict[str, Any]) -> dict[str, Any]:
    seconds = told["durationMs"].get("triggerExecution", 0) / 1000
    observed = told.get("observedMetrics") or {}
    return {
        "batch": told["batchId"],
        "time": told["timestamp"],
        "rows": told["numInputRows"],
        "seconds": seconds,
        "rows_per_second": round(told["numInputRows"] / seconds, 1) if seconds else None,
        "enrich": {
            name.removeprefix("semistream").strip(" .:_-") or name: metrics
            for name, metrics in observed.items()
            if name.startswith("semistream")
        },
    }
