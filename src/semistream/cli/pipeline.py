"""The commands of pipelines: ``semistream run``, ``check`` and ``replay``.

Spark and YAML are imported when a command needs them: the others work without.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.terminal import AsJson, errors, messages, needed, show
from semistream.pipeline import PipelineError
from semistream.units import parse_count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from semistream.pipeline import Pipeline

__all__ = ["check", "replay", "run"]

PipelineFile = Annotated[Path, typer.Argument(help="The pipeline, a YAML file.")]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--spark-master",
        "--master",
        help="Spark's master, not a master table: local[4], spark://host:7077, …",
    ),
]
FAILED = 3
"""The exit code of a query that met an error while it ran."""


def _print_schema(asked: bool) -> None:
    if asked:
        with messages(), _needed():
            from semistream.pipeline.file.schema import schema_text

            typer.echo(schema_text())
        raise typer.Exit


def check(
    file: PipelineFile,
    master: SparkMaster = None,
    as_json: AsJson = False,
    schema: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            callback=_print_schema,
            help="Print the JSON Schema of pipeline files, for editors; no file is needed.",
        ),
    ] = False,
) -> None:
    """Validate a pipeline and print its plan; no query runs.

    Spark is started, and databases are asked for their tables: columns and types are checked
    against the real schemas of the source and the masters. Every mistake is reported at once,
    with its line.
    """
    with messages(), _needed(), _mistakes(as_json):
        from semistream.pipeline import read_pipeline
        from semistream.pipeline.checkpoint import checkpoint
        from semistream.pipeline.file.describe import as_dict, as_text
        from semistream.pipeline.run.query import prepare
        from semistream.pipeline.run.runner import failures

        pipeline = read_pipeline(file)
        with _session(pipeline, master) as spark, failures():
            ready = prepare(pipeline, spark)
            begun = checkpoint.verify(pipeline, ready.flow, spark) is not None
        where = " (continues where it stopped)" if begun else " (new)"
        facts = {**as_dict(pipeline, ready.flow), "begun": begun}
        show(as_json, facts, as_text(pipeline, ready.flow) + where)


def run(
    file: PipelineFile,
    master: SparkMaster = None,
    once: Annotated[
        bool,
        typer.Option("--once", "--available-now", help="Process what is there, then stop."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until Ctrl-C; running it again continues where it stopped.

    With --json it prints one line of JSON per batch. The exit code is 0 if it ended as asked, also
    by Ctrl-C or SIGTERM; 1 if it was not started, because its file, schemas or checkpoint are
    wrong; 3 if it failed while running.
    """
    with messages(), _needed(), _mistakes():
        from semistream.cli.show import Reporter
        from semistream.pipeline import read_pipeline
        from semistream.pipeline.run import runner

        pipeline, ending = read_pipeline(file), runner.Ending()
        try:
            with _session(pipeline, master) as spark, Reporter(as_json) as reporter:
                finished = runner.run(pipeline, spark, once=once, seen=reporter.take, ending=ending)
        except runner.QueryFailedError as error:
            errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            errors.print("Running it again continues after the last complete batch.")
            raise typer.Exit(FAILED) from None
        end = "all input was processed" if finished else f"stopped by {ending.by}"
        more = "processes what arrives later" if finished else "continues where it stopped"
        text = f"{pipeline.name}: {end}; {reporter.summary}. Running it again {more}."
        errors.print(text, highlight=False, markup=False, soft_wrap=True)


def replay(
    file: PipelineFile,
    where: Annotated[
        str | None,
        typer.Option(help="Only these rows, as SQL: \"_reason = 'absent' AND _attempts < 3\"."),
    ] = None,
    limit: Annotated[
        str | None, typer.Option(help="At most this many rows, oldest first; such as 200k.")
    ] = None,
    any_query: Annotated[
        bool, typer.Option(help="Also take rows of other pipelines or checkpoints.")
    ] = False,
    master: SparkMaster = None,
    as_json: AsJson = False,
) -> None:
    """Run quarantined rows through the enrichments of their pipeline again.

    Rows that find their master rows now go to the sink, each once, and leave the quarantine; the
    others stay, and their attempts are counted. The next replay finishes one that was interrupted.
    """
    with messages(), _needed(), _mistakes(as_json):
        from semistream.pipeline import read_pipeline
        from semistream.pipeline.run.replay import replay as replay_rows
        from semistream.pipeline.run.runner import failures

        most = None if limit is None else parse_count(limit, "limit")
        pipeline = read_pipeline(file)
        with _session(pipeline, master) as spark, failures():
            result = replay_rows(pipeline, spark, where=where, limit=most, any_query=any_query)
        facts = {"quarantine": pipeline.quarantine.path, **asdict(result)}
        show(as_json, facts, f"{pipeline.quarantine.path}: {result}")


@contextmanager
def _session(pipeline: Pipeline, master: str | None) -> Iterator[SparkSession]:
    """Start a session for a command; one that was there before stays."""
    from pyspark.sql import SparkSession

    from semistream.pipeline.run.query import session_for

    before = SparkSession.getActiveSession()
    with errors.status("starting Spark"):
        spark = session_for(pipeline, master)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


@contextmanager
def _mistakes(as_json: bool = False) -> Iterator[None]:
    """List the mistakes of a file, one a line as compilers do, or as JSON."""
    try:
        yield
    except PipelineError as error:
        if as_json:
            problems = [{**asdict(each.mark), "message": each.message} for each in error.problems]
            typer.echo(json.dumps({"file": error.path, "problems": problems}, indent=2))
        else:
            errors.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
            count = len(error.problems)
            errors.print(f"{count} mistake{'s' if count > 1 else ''}; nothing was started")
        raise typer.Exit(1) from None


def _needed() -> AbstractContextManager[None]:
    """Name the extra that brings a missing package."""
    return needed(
        "a pipeline", **dict.fromkeys(("pyspark", "pandas", "yaml", "pydantic"), "pipeline")
    )
