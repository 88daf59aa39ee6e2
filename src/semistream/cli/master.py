"""``semistream master``: build, show, verify, sync and clean master tables."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from semistream.api import build_master
from semistream.cli.terminal import AsJson, build_bar, complain, console, messages, show
from semistream.errors import SchemaError, SemistreamError
from semistream.master import clean_master, list_snapshots, open_master, sync_master
from semistream.master.database.feeds.postgresql import trigger_sql
from semistream.master.snapshots.removal import KEEP
from semistream.units import parse_seconds

if TYPE_CHECKING:
    from semistream.master import FileMaster, Snapshot, Synced

__all__ = ["app"]

app = typer.Typer(
    help="Build, show, verify and sync master tables, and manage their snapshots.",
    no_args_is_help=True,
)

MasterPath = Annotated[Path, typer.Argument(help="The folder of the master table.")]


@app.command("build")
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
        str, typer.Option(help="Size of a page; 'auto' measures the disk, for large masters.")
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
            master = build_master(
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
        _show(master, as_json)


@app.command("show")
def show_master(path: MasterPath, as_json: AsJson = False) -> None:
    """Show the key, columns and size of a master table."""
    with messages():
        _show(open_master(path), as_json)


def _show(master: FileMaster, as_json: bool) -> None:
    facts = {
        "path": str(master.path),
        "snapshot": master.snapshot,
        "key": list(master.key),
        "columns": {field.name: str(field.type) for field in master.schema},
        "page_bytes": master.manifest.page_bytes,
        "filter_bytes": master.manifest.filter_words * 8,
        **vars(master.statistics),
    }
    show(as_json, facts, master.describe())


@app.command("trigger")
def trigger(
    table: Annotated[str, typer.Argument(help="The table, such as products or shop.products.")],
    key: Annotated[list[str], typer.Option(help="The key column; repeat for several.")],
    channel: Annotated[str, typer.Option(help="The channel to notify.")] = "semistream",
) -> None:
    """Print the SQL that makes PostgreSQL announce a table's changes (feed="notify")."""
    with messages():
        typer.echo(trigger_sql(table, key, channel), nl=False)


@app.command("verify")
def verify(path: MasterPath, as_json: AsJson = False) -> None:
    """Check the checksum of every page, and that the key filter has every key."""
    with messages():
        pages = open_master(path, read="direct").verify()
        facts = {"path": str(path), "pages": pages, "intact": True}
        show(as_json, facts, f"{path}: {pages:,} pages are as they were written", indent=None)


@app.command("sync")
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

    def sync_once(version: int | None) -> Synced:
        with build_bar() as progress:
            return sync_master(path, version, source=source, memory=memory, progress=progress)

    with messages():
        _show_sync(sync_once(version), as_json)
        if watch is None:
            return
        seconds = parse_seconds(watch, "watch")
        with suppress(KeyboardInterrupt):
            while True:
                sleep(seconds)
                try:
                    synced = sync_once(None)
                except SchemaError:  # only a table with other columns needs someone
                    raise
                except (SemistreamError, OSError) as error:
                    complain(error)  # a store may be away for a while, or a build at work
                    continue
                if synced.how:
                    _show_sync(synced, as_json)


def _show_sync(synced: Synced, as_json: bool) -> None:
    master = synced.master
    facts = {"path": str(master.path), "snapshot": master.snapshot, "version": synced.version}
    facts |= {name: value for name, value in vars(synced).items() if name != "master"}
    show(as_json, facts | {"rows": master.rows}, synced.describe(), indent=None)


@app.command("snapshots")
def snapshots(path: MasterPath, as_json: AsJson = False) -> None:
    """List the snapshots of a master table, and which queries may still read them."""
    with messages():
        rows = [_snapshot_facts(snapshot) for snapshot in list_snapshots(path)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("snapshot", "rows", "made", "source", "needed by")
    for row in rows:
        current = ["new queries"] if row["current"] else []
        source = ", ".join(f"{name} {value}" for name, value in row["source"].items())
        needed = "\n".join([*current, *row["pinned_by"]]) or "no one"
        table.add_row(row["files"], f"{row['rows']:,}", row["made"], source, needed)
    console.print(table)


def _snapshot_facts(snapshot: Snapshot) -> dict[str, Any]:
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


@app.command("clean")
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
    text = f"{path}: {len(removed)} snapshots removed, {len(list_snapshots(path))} stay"
    show(as_json, {"path": str(path), "removed": removed}, text, indent=None)
