"""The command ``semistream master sync``: a master follows its table."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistream.cli.terminal import AsJson, build_bar, complain, console, messages
from semistream.errors import SchemaError, SemistreamError
from semistream.master import sync_master
from semistream.units import parse_seconds

if TYPE_CHECKING:
    from semistream.master import Synced

__all__ = ["add_to"]

MasterPath = Annotated[Path, typer.Argument(help="The folder of the master table.")]


def add_to(app: typer.Typer) -> None:
    """Add the command to those of masters."""
    app.command("sync")(sync)


def sync(
    path: MasterPath,
    version: Annotated[
        int | None, typer.Option(help="The version to sync to; the newest by default.")
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            help="Keep following the table, looking this often; such as 30s. Stop with Ctrl-C."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Where the table is now, if it has moved.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory for sorting the changes.")] = "1GB",
    as_json: AsJson = False,
) -> None:
    """Bring a master to the newest version of its table by applying changed rows."""
    with messages():
        _tell(_synced(path, version, source, memory), as_json)
        if watch is not None:
            _follow(path, source, memory, as_json, parse_seconds(watch, "watch"))


def _synced(path: Path, version: int | None, source: str | None, memory: str) -> Synced:
    with build_bar() as progress:
        return sync_master(path, version, source=source, memory=memory, progress=progress)


def _follow(path: Path, source: str | None, memory: str, as_json: bool, seconds: float) -> None:
    """Sync again and again; tell of each time that brought something.

    What fails is tried again: a store may be away for a while, or a build at work. Only a table
    with other columns needs someone.
    """
    with suppress(KeyboardInterrupt):
        while True:
            sleep(seconds)
            try:
                synced = _synced(path, None, source, memory)
            except SchemaError:
                raise
            except (SemistreamError, OSError) as error:
                complain(error)
                continue
            if synced.how:
                _tell(synced, as_json)


def _tell(synced: Synced, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_facts(synced)))
    else:
        console.print(synced.describe(), highlight=False, markup=False, soft_wrap=True)


def _facts(synced: Synced) -> dict[str, Any]:
    facts = {name: value for name, value in vars(synced).items() if name != "master"}
    master = synced.master
    about = {"path": str(master.path), "snapshot": master.snapshot, "version": synced.version}
    return about | facts | {"rows": master.rows}
