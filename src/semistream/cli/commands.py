"""The commands of ``semistream``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from semistream import __version__
from semistream.algorithms import algorithms as known_algorithms
from semistream.api import build_master
from semistream.cli import jars as jar_commands
from semistream.cli import pipeline as pipeline_commands
from semistream.cli import snapshots as snapshot_commands
from semistream.cli import sync as sync_commands
from semistream.cli.terminal import BUDGETS, DATA, AsJson, build_bar, console, messages
from semistream.cost.planning import commands as planning_commands
from semistream.cost.tuning import command as tune_command
from semistream.master import FileMaster, open_master
from semistream.master.database.feeds.postgresql import trigger_sql

__all__ = ["app"]

app = typer.Typer(
    help="Enrich a stream from a master table on disk, within a memory budget given in bytes. "
    "Start with semistream demo; or with master build, check and run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
master_app = typer.Typer(
    help="Build, show, verify and sync master tables, and manage their snapshots.",
    no_args_is_help=True,
)
app.add_typer(master_app, name="master", rich_help_panel=DATA)
pipeline_commands.add_to(app)
jar_commands.add_to(app)
planning_commands.add_to(app)
tune_command.add_to(app)

MasterPath = Annotated[Path, typer.Argument(help="The folder of the master table.")]


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


@master_app.command("build")
def build(  # noqa: PLR0913, PLR0917 - one argument an option
    source: Annotated[
        str,
        typer.Argument(
            help="A Parquet file or a folder of them, a Delta table, the metadata file of an "
            "Iceberg table, or iceberg://<catalog>/<namespace>.<table>"
        ),
    ],
    path: Annotated[Path, typer.Argument(help="The folder to write; replaced atomically.")],
    key: Annotated[list[str], typer.Option(help="The key column; repeat for several.")],
    version: Annotated[
        int | None,
        typer.Option(help="Delta version or Iceberg snapshot id; the newest by default."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A column to keep; repeat for several. All by default.")
    ] = None,
    page_bytes: Annotated[
        str, typer.Option(help="Size of a page; smaller for small budgets.")
    ] = "128KB",
    memory: Annotated[
        str, typer.Option(help="Memory for sorting; more rows are sorted on disk.")
    ] = "1GB",
    with_filter: Annotated[
        bool,
        typer.Option(
            "--filter/--no-filter", help="Store a Bloom filter, which answers absent keys."
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Build a master table from Parquet files, a Delta or an Iceberg table."""
    with messages():
        with build_bar() as progress:
            built = build_master(
                source,
                path,
                key=key,
                version=version,
                columns=column or None,
                page_bytes=page_bytes,
                memory=memory,
                filter=with_filter,
                progress=progress,
            )
        _tell(built, as_json)


@master_app.command("show")
def show(path: MasterPath, as_json: AsJson = False) -> None:
    """Show the key, columns and size of a master table."""
    with messages():
        _tell(open_master(path), as_json)


@master_app.command("trigger")
def trigger(
    table: Annotated[str, typer.Argument(help="The table, such as products or shop.products.")],
    key: Annotated[list[str], typer.Option(help="The key column; repeat for several.")],
    channel: Annotated[str, typer.Option(help="The channel to notify.")] = "semistream",
) -> None:
    """Print the SQL that makes PostgreSQL announce a table's changes (feed="notify")."""
    with messages():
        typer.echo(trigger_sql(table, key, channel), nl=False)


def _tell(master: FileMaster, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_facts(master), indent=2))
    else:
        console.print(master.describe(), highlight=False, markup=False, soft_wrap=True)


def _facts(master: FileMaster) -> dict[str, Any]:
    return {
        "path": str(master.path),
        "snapshot": master.snapshot,
        "key": list(master.key),
        "columns": {field.name: str(field.type) for field in master.schema},
        "page_bytes": master.manifest.page_bytes,
        "filter_bytes": master.manifest.filter_words * 8,
        **vars(master.statistics),
    }


@master_app.command("verify")
def verify(path: MasterPath, as_json: AsJson = False) -> None:
    """Check the checksum of every page, and that the key filter has every key."""
    with messages():
        pages = open_master(path, read="direct").verify()
        if as_json:
            typer.echo(json.dumps({"path": str(path), "pages": pages, "intact": True}))
            return
        console.print(
            f"{path}: {pages:,} pages are as they were written", markup=False, soft_wrap=True
        )


sync_commands.add_to(master_app)
snapshot_commands.add_to(master_app)
