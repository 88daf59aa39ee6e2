"""Pipelines on Spark: from what a file says to a running query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semistream.errors import SemistreamError
from semistream.pipeline.checkpoint import checkpoint
from semistream.pipeline.file.check import Flow, Surroundings, check
from semistream.pipeline.file.errors import PipelineError, Problem
from semistream.pipeline.file.models import NOW
from semistream.pipeline.io.delta import limit_log_tasks
from semistream.pipeline.io.heartbeat import add_heartbeat
from semistream.pipeline.io.sinks import stream_writer
from semistream.pipeline.io.sources import load
from semistream.pipeline.late.split import add_batch_time, select_columns
from semistream.pipeline.run.batch_writer import BatchWriter, check_dimensions, status_column
from semistream.spark.cluster import jars
from semistream.spark.cluster.executors import context_of, tasks_at_once
from semistream.spark.cluster.session import session
from semistream.spark.enrich.enrichment import enrich_frame
from semistream.spark.lookup.copies import local_copy
from semistream.spark.lookup.job import Copies
from semistream.spark.types import arrow_schema, transfer_type, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from semistream.master import Master
    from semistream.pipeline import Pipeline
    from semistream.pipeline.file.models import Enrichment

__all__ = ["PreparedPipeline", "check_schemas", "enrich_all", "prepare", "session_for", "start"]

_ASKED = ("transfer", "partition")
_CONNECTORS = {"kafka", "delta", "postgresql"}


@dataclass(frozen=True)
class PreparedPipeline:
    """A pipeline that was checked against the real schemas, and can start."""

    pipeline: Pipeline
    flow: Flow
    frame: DataFrame
    """What reaches the sink; with status columns where rows are split by them."""


def session_for(pipeline: Pipeline, master: str | None = None) -> SparkSession:
    """Start a Spark session with what the pipeline asks for: settings, and jars if it needs any."""
    wanted = {pipeline.source.kind, pipeline.sink.kind, *(["delta"] if pipeline.by_batch else [])}
    needed = wanted & _CONNECTORS
    config = _merge(jars.resolve(needed) if needed else {}, pipeline.spark)
    spark = session(f"semistream {pipeline.name}", master=master, config=config)
    if "delta" in needed and context_of(spark) is not None:
        limit_log_tasks(spark)
    return spark


def _merge(connectors: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the connectors' settings overridden by the file's; lists are joined."""
    both = {**connectors, **own}
    for name in ("spark.jars", "spark.jars.packages", "spark.sql.extensions"):
        if name in connectors and name in own:
            both[name] = f"{connectors[name]},{own[name]}"
    return both


def prepare(pipeline: Pipeline, spark: SparkSession) -> PreparedPipeline:
    """Check a pipeline against the schemas of its source and its masters; nothing starts.

    Raises
    ------
    PipelineError
        Columns, types or budgets do not go together: every mistake, each with its line.
    """
    stream = load(pipeline, spark)
    flow = check_schemas(pipeline, spark, stream)
    if pipeline.waits:
        stream = add_heartbeat(stream, pipeline.waiting.delay)
    if pipeline.by_batch:
        rows = enrich_all(add_batch_time(stream), pipeline)
    else:
        rows = select_columns(enrich_all(stream, pipeline), flow.columns)
    return PreparedPipeline(pipeline, flow, rows)


def check_schemas(pipeline: Pipeline, spark: SparkSession, stream: DataFrame) -> Flow:
    """Check a pipeline against the schemas of its stream, or of a batch, and of its masters."""
    around = Surroundings(tasks_at_once(spark), _open, transfer_type, type_name)
    flow = check(pipeline, arrow_schema(stream.schema), around)
    check_dimensions(pipeline, flow, spark)
    return flow


def _open(step: Enrichment) -> Master:
    copies = Copies.of(step.localize)
    return step.open(local_copy(step.master, copies) if copies else "")


def enrich_all(stream: DataFrame, pipeline: Pipeline, again: bool = False) -> DataFrame:
    """Join a stream, or a batch, with the masters of a pipeline; some rows perhaps again."""
    for i, step in enumerate(pipeline.enrich):
        options = replace(step.enrich_options, status=status_column(step, i) or "")
        if again:
            # Java can't look rows up that come as a batch in a stream; how they pass changes
            # nothing.
            transfer = "auto" if step.transfer == "none" else step.transfer
            name = f"{step.name} (again)"
            options = replace(options, transfer=transfer, name=name, check=False)
        single = bool(step.surrogate) or pipeline.keeps_single(i)
        master = step.open() if step.live else step.master
        try:
            stream = enrich_frame(stream, master, options, single=single, keep_name=True)
        except SemistreamError as error:
            named = (name for name in _ASKED if f"{name}=" in str(error))
            where = ".".join([f"enrich[{i}]", *named])
            problem = Problem(pipeline.mark(where), f"{where}: {error}")
            raise PipelineError(str(pipeline.path), [problem]) from error
    return stream


def start(
    pipeline: Pipeline | PreparedPipeline, spark: SparkSession, *, once: bool = False
) -> StreamingQuery:
    """Start a pipeline; return Spark's query, which runs until it is stopped or has ended.

    It goes on where its checkpoint says.

    Parameters
    ----------
    pipeline
        A pipeline, from `read_pipeline`, or one that is prepared already.
    spark
        The session, from `session_for` or your own.
    once
        Process what is there and end, whatever the file's trigger says. The generator has no end
        to find: it is stopped by `semistream.pipeline.run.runner.follow`.

    Raises
    ------
    PipelineError
        Columns, types or budgets do not go together.
    CheckpointError
        The checkpoint is another pipeline's, or what it was begun with has changed.
    """
    ready = pipeline if isinstance(pipeline, PreparedPipeline) else prepare(pipeline, spark)
    settings = ready.pipeline
    query = checkpoint.claim(settings, ready.flow, spark)
    writer = _writer(ready, query).outputMode("append").queryName(settings.name)
    writer = writer.option("checkpointLocation", settings.checkpoint)
    if once or settings.trigger == NOW:
        # Spark would ask the generator only once for its end, and stop after a first batch.
        if settings.source.kind != "generator":
            writer = writer.trigger(availableNow=True)
    elif settings.trigger:
        writer = writer.trigger(processingTime=settings.trigger)
    return writer.start()


def _writer(ready: PreparedPipeline, query: str) -> DataStreamWriter:
    settings, frame = ready.pipeline, ready.frame
    if not settings.by_batch:
        return stream_writer(settings.sink, frame, query)
    batches = BatchWriter(
        settings, ready.flow, lambda rows: enrich_all(rows, settings, again=True), query
    )
    batches.batch_log(frame.sparkSession).restore_pins()
    return frame.writeStream.foreachBatch(batches.writer(frame))
