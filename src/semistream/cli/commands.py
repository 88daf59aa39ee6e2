"""The commands of ``semistream``, gathered from the files of their groups."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from semistream import __version__
from semistream.algorithms import algorithms as known_algorithms
from semistream.cli import generate, jars, master, pipeline, planning
from semistream.cli.demo.command import demo
from semistream.cli.terminal import BUDGETS, DATA, PIPELINES, AsJson, console

__all__ = ["app"]

app = typer.Typer(
    help="Enrich a stream from a master table on disk, within a memory budget given in bytes. "
    "Start with semistream demo; or with master build, check and run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(master.app, name="master", rich_help_panel=DATA)
for command in (pipeline.run, pipeline.check, pipeline.replay, demo):
    app.command(command.__name__, rich_help_panel=PIPELINES)(command)
app.add_typer(generate.app, name="generate", rich_help_panel=DATA)
app.add_typer(jars.app, name="jars", rich_help_panel=PIPELINES)
app.command("plan", rich_help_panel=BUDGETS)(planning.plan)
app.command("tune", rich_help_panel=BUDGETS)(planning.tune)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"semistream {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that need no command."""


@app.command("algorithms", rich_help_panel=BUDGETS)
def list_algorithms(as_json: AsJson = False) -> None:
    """List the algorithms and their papers."""
    if as_json:
        typer.echo(json.dumps(dict(known_algorithms()), indent=2))
        return
    table = Table("algorithm", "paper")
    for name, paper in known_algorithms().items():
        table.add_row(name, paper)
    console.print(table)
