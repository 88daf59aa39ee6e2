"""The command that measures enrichment from live databases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.extras import spark_needed
from benchmarks.store import write_record
from benchmarks.tables import sheets
from semistream.cli.terminal import AsJson, console, errors, messages, terminal_table
from semistream.cost.tuning.record import compact

__all__ = ["add_to"]

Url = Annotated[
    list[str],
    typer.Option(
        "--url",
        envvar="SEMISTREAM_BENCH_URLS",
        help="A database to measure, postgresql://… or mysql://…; a table is created in it.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("live")(bench_live)


def bench_live(  # noqa: PLR0913, PLR0917 - one argument an option
    url: Url,
    output: Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of the table, R.")] = None,
    batch_rows: Annotated[
        list[int] | None, typer.Option(help="Rows per micro-batch; repeat for several.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="The number of samples.")] = None,
    quick: Annotated[bool, typer.Option(help="A small table and few batches.")] = False,
    data: Annotated[Path, typer.Option(help="Where streams are kept.")] = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure enrichment from a database, beside a JDBC key list and row-by-row lookups.

    In micro-batches of files, into no sink, on local[2]; the budget is 5 % of the table. The rows
    of all systems are compared before they are timed. The server itself counts its queries, so
    nothing else should use it meanwhile.
    """
    with messages(), spark_needed():
        from benchmarks.spark.live.measure import (  # noqa: PLC0415 - an extra
            LiveGrid,
            engines_for_live,
            measure_live,
        )

        grid = LiveGrid().quick() if quick else LiveGrid()
        given: dict[str, Any] = {
            "rows": rows,
            "batch_rows": batch_rows and tuple(batch_rows),
            "rounds": rounds,
        }
        grid = replace(grid, **{name: value for name, value in given.items() if value})
        record: dict[str, Any] = {}
        with engines_for_live() as engines:
            for record in measure_live(grid, url, data.absolute(), engines, _say):
                if output is not None:
                    write_record(record, output)
        if as_json:
            typer.echo(compact(record))
            return
        for sheet in sheets(record):
            console.print(terminal_table(sheet))


def _say(what: str) -> None:
    errors.print(what, highlight=False)
