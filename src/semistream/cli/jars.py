"""``semistream jars``: the connector jars of Kafka, Delta, Iceberg and PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from semistream.cli.terminal import AsJson, console, messages, progress_bar, show
from semistream.errors import OptionError
from semistream.spark.cluster import jars

__all__ = ["app"]

Folder = Annotated[
    Path | None,
    typer.Option(help="The folder of jars; by default SEMISTREAM_JARS, or the user's cache."),
]
Kinds = Annotated[list[str], typer.Argument(help=f"One or more of: {', '.join(jars.KINDS)}.")]

app = typer.Typer(
    help="Fetch and list the jars of Kafka, Delta, Iceberg and PostgreSQL for Spark.",
    no_args_is_help=True,
)


@app.command("fetch")
def fetch(kinds: Kinds, folder: Folder = None, as_json: AsJson = False) -> None:
    """Fetch the jars that fit the installed Spark, from Maven Central or its mirror."""
    with messages():
        place = folder or jars.folder_for()
        with progress_bar() as bar:
            task = bar.add_task("jars", total=None)

            def report(name: str, done: int, total: int) -> None:
                bar.update(task, description=name, completed=done, total=total or None)

            files = jars.fetch(kinds, place, report)
        text = f"{place}: {len(files)} jars for Spark {jars.spark_version()}"
        show(as_json, [str(file) for file in files], text)


@app.command("list")
def list_jars(folder: Folder = None, as_json: AsJson = False) -> None:
    """List the connectors, their jars for the installed Spark, and which are fetched."""
    with messages():
        place = folder or jars.folder_for()
        facts = [_facts(kind, place) for kind in jars.KINDS]
        if as_json:
            about = {"spark": jars.spark_version(), "folder": str(place), "connectors": facts}
            typer.echo(json.dumps(about, indent=2))
            return
        table = Table("connector", "jars", "fetched", title=f"Spark {jars.spark_version()}")
        for fact in facts:
            table.add_row(fact["connector"], "\n".join(fact["jars"]) or fact["why"], fact["state"])
        console.print(table)


def _facts(kind: str, folder: Path) -> dict[str, Any]:
    try:
        names = [artifact.coordinate for artifact in jars.artifacts(kind)]
    except OptionError as error:
        return {"connector": kind, "jars": [], "state": "no", "why": str(error)}
    absent = len(jars.missing([kind], folder))
    state = "yes" if not absent else "no" if absent == len(names) else "in part"
    return {"connector": kind, "jars": names, "state": state}
