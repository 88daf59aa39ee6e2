"""A driver that is killed: a stream of Parquet files, enriched, into a table; then its content.

Run as ``python driver.py job.json``; it ends when every file was joined, and goes on from its
checkpoint when it is started again.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from semistream.api import enrich
from semistream.pipeline import read_pipeline
from semistream.pipeline.run import runner
from semistream.spark.cluster.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_A_BATCH = 2  # a task each


@dataclass(frozen=True)
class Job:
    """What the driver is told: where it runs, what it reads, where it writes."""

    spark: str
    stream: str
    master: str
    table: str
    checkpoint: str
    result: str
    sink: str = "parquet"
    how: str = "left"
    transfer: str = "auto"
    pipeline: str = ""
    """A pipeline's file with rows that wait, to be run until none does, instead of the query."""
    config: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def run(job: Job) -> None:
    spark = session("kills", master=job.spark, config=job.config)
    _run_pipeline(job, spark) if job.pipeline else _run_query(job, spark)
    content = spark.read.format(job.sink).load(job.table).toArrow()
    draft = Path(f"{job.result}.draft")
    pq.write_table(content, draft)
    draft.replace(job.result)
    spark.stop()


def _run_pipeline(job: Job, spark: SparkSession) -> None:
    pipeline = read_pipeline(job.pipeline)
    while True:
        runner.run(pipeline, spark, once=True)
        if spark.read.format("delta").load(pipeline.waiting.path).isEmpty():
            return
        time.sleep(0.5)


def _run_query(job: Job, spark: SparkSession) -> None:
    schema = spark.read.parquet(job.stream).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH)
    stream = files.parquet(job.stream)
    query = (
        enrich(stream, job.master, on="key", how=job.how, memory="8MB", transfer=job.transfer)
        .writeStream.format(job.sink)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start(job.table)
    )
    query.awaitTermination()


if __name__ == "__main__":
    run(Job(**json.loads(Path(sys.argv[1]).read_text())))
