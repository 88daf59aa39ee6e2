"""Running a pipeline: a report a batch, and a clean end."""

from __future__ import annotations

import re
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from semistream.errors import SemistreamError
from semistream.pipeline.file.ends import GeneratorSource
from semistream.pipeline.file.models import NOW
from semistream.pipeline.run.progress import POLL_SECONDS, Metrics, Reports
from semistream.pipeline.run.query import prepare, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from semistream.pipeline import Pipeline

__all__ = ["Ending", "QueryFailedError", "failures", "follow", "last_row", "run", "stop_signals"]

_HINTS = {"MALFORMED_RECORD": " The source can leave such records out: malformed: drop."}


class QueryFailedError(SemistreamError, RuntimeError):
    """A query met an error while it ran; its checkpoint is as good as before."""


@contextmanager
def failures() -> Iterator[None]:
    """Turn errors of Spark's into a `QueryFailedError` of one line."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise QueryFailedError(_cause(error)) from error


@dataclass
class Ending:
    """Asks a run to end; signals set it."""

    asked: threading.Event = field(default_factory=threading.Event)
    by: str = ""

    def ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler has it
        """Handle a signal."""
        self.by = signal.Signals(number).name
        self.asked.set()


@contextmanager
def stop_signals(ending: Ending) -> Iterator[None]:
    """Have SIGINT (Ctrl-C) and SIGTERM end the run, not the process; only in the main thread.

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
    """Return the row at which a run with a generator has done what is there, or None.

    A generator without end has always more; a run that is to end is content with one batch of it.
    """
    source = pipeline.source
    if not isinstance(source, GeneratorSource) or not (once or pipeline.trigger == NOW):
        return None
    return source.rows or 1


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    once: bool = False,
    seen: Callable[[dict[str, Any]], None] = lambda _: None,
    ending: Ending | None = None,
) -> bool:
    """Run a pipeline to its end, or until SIGINT or SIGTERM; it goes on where it stopped.

    Parameters
    ----------
    pipeline
        What to run, from `read_pipeline`.
    spark
        The session, from `session_for` or your own.
    once
        Process what is there, then end.
    seen
        Callback: a report of each batch, with batch, rows, seconds, and what enrichments did.
    ending
        Ends the run from another thread, when it is asked.

    Returns
    -------
    bool
        True if it came to its end, False if it was asked to end.

    Raises
    ------
    PipelineError, CheckpointError
        It cannot start.
    QueryFailedError
        It failed while it ran.
    """
    ending = ending or Ending()
    with stop_signals(ending):
        metrics = Metrics(spark, len(pipeline.enrich))
        try:
            with failures():
                query = start(prepare(pipeline, spark), spark, once=once)
            return follow(query, seen, ending, last_row(pipeline, once), metrics)
        finally:
            metrics.close()


def follow(
    query: StreamingQuery,
    seen: Callable[[dict[str, Any]], None],
    ending: Ending,
    last_row: int | None = None,
    metrics: Metrics | None = None,
) -> bool:
    """Wait for a query's end; return whether it came to its own end, or was asked to.

    Parameters
    ----------
    query
        The running query.
    seen
        Callback: a report of each batch, with batch, rows, seconds, and what was observed.
    ending
        Ends the query when it is asked.
    last_row
        End when the generator has come to this row.
    metrics
        What enrichments report, if it was asked for before the query started.
    """
    reports = Reports(query, seen, metrics)
    try:
        while query.isActive and not ending.asked.is_set():
            query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type] # part of a second is fine
            reports.look()
            if last_row is not None and reports.row >= last_row:
                query.stop()
        if query.isActive:
            query.stop()
        if failure := query.exception():  # between two looks, awaitTermination did not tell it
            raise failure
        reports.finish()
    except PySparkException as error:
        # Workers take the signal of a terminal too: a batch may fail before it is stopped.
        if not ending.asked.is_set():
            raise QueryFailedError(_cause(error)) from error
    finally:
        if query.isActive:  # what takes the reports has failed
            query.stop()
    return not ending.asked.is_set()


def _cause(error: Exception) -> str:
    """Return the line of an error that says what happened: Python's last one, or Spark's first."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    if ours:
        return ours[-1]
    first = (lines or [repr(error)])[0].rpartition("terminated with exception: ")[2]
    hint = next((hint for word, hint in _HINTS.items() if word in first), "")
    return first.partition(" SQLSTATE:")[0] + hint
