"""The commands of ``semistream``."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from semistream.algorithms import algorithms as known_algorithms
from semistream.bench.build import measure_build
from semistream.bench.measure import Grid, measure, prepare
from semistream.bench.show import rate_tables
from semistream.errors import SemistreamError
from semistream.master import Master, build_master, open_master
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semistream.master import Progress as BuildProgress

__all__ = ["app"]

app = typer.Typer(
    help="Join a stream with a master table on disk, within a memory budget given in bytes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
master_app = typer.Typer(help="Build, show and verify master tables.", no_args_is_help=True)
app.add_typer(master_app, name="master")
console = Console()
errors = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
MasterPath = Annotated[Path, typer.Argument(help="The folder of the master table.")]


@contextmanager
def _messages() -> Iterator[None]:
    """Turn our errors into a message and exit code 1."""
    try:
        yield
    except SemistreamError as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    times = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, *times, console=errors, transient=True)


@contextmanager
def _build_bar() -> Iterator[Callable[[BuildProgress], None]]:
    with _bar() as bar:
        task = bar.add_task("read", total=None)
        yield lambda p: bar.update(task, description=p.phase, completed=p.rows, total=p.total)


@app.command("algorithms")
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
def build(
    source: Annotated[Path, typer.Argument(help="A Parquet file, or a folder of them.")],
    path: Annotated[Path, typer.Argument(help="The folder to write; replaced atomically.")],
    key: Annotated[list[str], typer.Option(help="The key column; repeat it for several.")],
    page_bytes: Annotated[str, typer.Option(help="The size of a page.")] = "128KB",
    memory: Annotated[str, typer.Option(help="What sorting may use.")] = "1GB",
    with_filter: Annotated[
        bool, typer.Option("--filter/--no-filter", help="Store a filter for absent keys.")
    ] = True,
) -> None:
    """Build a master table from Parquet files, sorted out of core."""
    with _messages():
        with _build_bar() as progress:
            built = build_master(
                str(source),
                path,
                key=key,
                page_bytes=page_bytes,
                memory=memory,
                filter=with_filter,
                progress=progress,
            )
        console.print(built.describe(), highlight=False, markup=False, soft_wrap=True)


@master_app.command("show")
def show(path: MasterPath, as_json: AsJson = False) -> None:
    """Show what a master table is."""
    with _messages():
        master = open_master(path)
        if as_json:
            typer.echo(json.dumps(_facts(master), indent=2))
        else:
            console.print(master.describe(), highlight=False, markup=False, soft_wrap=True)


def _facts(master: Master) -> dict[str, Any]:
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
def verify(path: MasterPath) -> None:
    """Read every page and compare its checksum."""
    with _messages():
        pages = open_master(path, read="direct").verify()
        console.print(f"{path}: {pages:,} pages are as they were written", markup=False)


@app.command()
def bench(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = 2_000_000,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="Measure only this one; repeat it for several.")
    ] = None,
    share: Annotated[
        list[float] | None, typer.Option(help="A budget, as a share of R; repeat it.")
    ] = None,
    read: Annotated[list[str] | None, typer.Option(help="mapped or direct; repeat it.")] = None,
    exponent: Annotated[float, typer.Option(help="The stream's Zipf exponent.")] = 1.0,
    seconds: Annotated[float, typer.Option(help="How long each sample takes.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="How many samples.")] = 5,
    data: Annotated[Path, typer.Option(help="Where the master is kept.")] = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure the service rate of every algorithm beside the in-memory bound."""
    with _messages():
        grid = Grid(
            algorithms=tuple(algorithm or known_algorithms()),
            rows=rows,
            exponent=exponent,
            shares=tuple(share or Grid.shares),
            reads=tuple(read or Grid.reads),
            seconds=seconds,
            rounds=rounds,
        )
        with _bar() as bar:
            task = bar.add_task("building the master", total=grid.cells)
            path = prepare(grid, data)
            record = measure(grid, path, lambda what: bar.update(task, description=what, advance=1))
        _store(record, output)
        _print_rates(record, as_json)


def _store(record: dict[str, Any], output: Path | None) -> None:
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(record, indent=1) + "\n")


def _print_rates(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record, indent=1))
        return
    for table in rate_tables(record):
        console.print(table)


@app.command("bench-build")
def bench_build(
    rows: Annotated[int, typer.Option(help="Rows of the master.")] = 20_000_000,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row.")] = 120,
    memory: Annotated[str, typer.Option(help="What sorting may use.")] = "1GB",
    output: Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")] = None,
) -> None:
    """Build a large master from rows in scattered order, and show what it took."""
    with _messages(), tempfile.TemporaryDirectory(dir=".") as folder:
        with _build_bar() as progress:
            record = measure_build(rows, row_bytes, memory, Path(folder) / "master", progress)
        _store(record, output)
        console.print(
            f"{rows:,} rows × {row_bytes} B in {record['seconds']:.1f} s "
            f"({record['rows_a_second']:,.0f} rows/s); memory={memory}, the process grew by "
            f"{format_bytes(record['grown_bytes'])}; {record['pages']:,} pages verified",
            highlight=False,
        )
