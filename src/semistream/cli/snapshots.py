"""The commands that list a master's snapshots, and remove those that no one needs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from semistream.cli.terminal import AsJson, console, messages
from semistream.master import clean_master, list_snapshots
from semistream.master.snapshots.removal import KEEP

if TYPE_CHECKING:
    from semistream.master import Snapshot

__all__ = ["add_to"]

MasterPath = Annotated[Path, typer.Argument(help="The folder of the master table.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to those on masters."""
    app.command("snapshots")(snapshots)
    app.command("clean")(clean)


def snapshots(path: MasterPath, as_json: AsJson = False) -> None:
    """List the snapshots of a master table, and which queries may still read them."""
    with messages():
        found = [_facts(snapshot) for snapshot in list_snapshots(path)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("snapshot", "rows", "made", "source", "needed by")
    for facts in found:
        current = ["new queries"] if facts["current"] else []
        source = ", ".join(f"{name} {value}" for name, value in facts["source"].items())
        needed = "\n".join([*current, *facts["pinned_by"]]) or "no one"
        table.add_row(facts["files"], f"{facts['rows']:,}", facts["made"], source, needed)
    console.print(table)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    manifest = snapshot.manifest
    return {
        "files": manifest.files,
        "snapshot": manifest.snapshot,
        "rows": manifest.statistics.rows,
        "made": datetime.fromtimestamp(snapshot.time, UTC).isoformat(timespec="seconds"),
        "source": dict(manifest.source),
        "parent": manifest.parent,
        "current": snapshot.current,
        "pinned_by": list(snapshot.pinned_by),
    }


def clean(
    path: MasterPath,
    keep: Annotated[
        str, typer.Option(help="How long to keep the snapshots of a query that no longer runs.")
    ] = KEEP,
    as_json: AsJson = False,
) -> None:
    """Remove the snapshots that no query needs; every build and sync does so too."""
    with messages():
        removed = clean_master(path, keep)
    if as_json:
        typer.echo(json.dumps({"path": str(path), "removed": removed}))
        return
    told = f"{path}: {len(removed)} snapshots removed, {len(list_snapshots(path))} stay"
    console.print(told, markup=False, highlight=False, soft_wrap=True)
