"""``semistream generate``: workloads as Parquet files."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import pyarrow.parquet as pq
import typer

from semistream.cli.terminal import console, messages, progress_bar
from semistream.errors import OptionError
from semistream.pipeline.io.sales import BLOCK, Sales
from semistream.units import format_bytes, parse_count
from semistream.workloads import Stream, Zipf, master_table

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

app = typer.Typer(help="Generate test data as Parquet files.", no_args_is_help=True)

Rows = Annotated[str, typer.Option(help="The number of rows; 2M is two million.")]
RowBytes = Annotated[int, typer.Option(help="Bytes per row.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same rows.")]
Strings = Annotated[bool, typer.Option(help="Make the keys strings.")]
Stride = Annotated[int, typer.Option(help="The step between keys; 2 leaves gaps for absent keys.")]


@app.command("master")
def generate_master(
    out: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    rows: Rows = "2M",
    row_bytes: RowBytes = 120,
    duplicates: Annotated[int, typer.Option(help="Rows per key.")] = 1,
    stride: Stride = 1,
    strings: Strings = False,
    seed: Seed = 0,
) -> None:
    """Write the rows of a master table; build it with `semistream master build --key key`."""
    with messages():
        keys = max(1, parse_count(rows) // duplicates)
        table = master_table(keys, row_bytes, duplicates, seed, stride=stride, strings=strings)
        _make_room(out)
        with progress_bar() as bar, pq.ParquetWriter(out, table.schema) as writer:
            task = bar.add_task("master", total=keys * duplicates)
            for batch in table:
                writer.write_batch(batch)
                bar.advance(task, batch.num_rows)
        _say(out, keys * duplicates, [out])


@app.command("stream")
def generate_stream(  # noqa: PLR0913, PLR0917 - one argument an option
    out: Annotated[Path, typer.Argument(help="The folder to write Parquet files into.")],
    rows: Rows = "5M",
    keys: Annotated[str, typer.Option(help="The number of keys; 2M is two million.")] = "2M",
    skew: Annotated[float, typer.Option(help="The Zipf exponent; 0 is uniform.")] = 1.0,
    files: Annotated[int, typer.Option(help="The number of files.", min=1)] = 20,
    row_bytes: RowBytes = 20,
    absent: Annotated[
        float, typer.Option(help="The fraction of rows without a match, from 0 to 1.")
    ] = 0.0,
    stride: Stride = 1,
    strings: Strings = False,
    seed: Seed = 0,
) -> None:
    """Write a stream of sales: the rows that a pipeline's generator source makes."""
    with messages():
        zipf = Zipf(parse_count(keys, "keys"), skew)
        stream = Stream(
            zipf, seed=seed, row_bytes=row_bytes, absent=absent, stride=stride, strings=strings
        )
        total = parse_count(rows)
        _make_room(out, folder=True)
        with progress_bar() as bar:
            task = bar.add_task("stream", total=total)
            written = _write_files(Sales(stream), total, files, out, lambda n: bar.advance(task, n))
        _say(out, total, written)


def _write_files(
    sales: Sales, rows: int, files: int, out: Path, done: Callable[[int], None]
) -> list[Path]:
    share = -(-rows // files)
    written = []
    for number, start in enumerate(range(0, rows, share)):
        # Written under a name that streams do not read, for they take a file when it appears.
        part, path = out / f".part-{number:05}.parquet", out / f"part-{number:05}.parquet"
        with pq.ParquetWriter(part, sales.schema) as writer:
            for batch in sales.rows(start, min(start + share, rows)):
                writer.write_batch(batch, row_group_size=BLOCK)
                done(batch.num_rows)
        part.replace(path)
        written.append(path)
    return written


def _make_room(out: Path, *, folder: bool = False) -> None:
    if folder and out.is_dir() and any(out.iterdir()):
        msg = f"{out} holds files already; name a new folder, or remove it first"
        raise OptionError(msg)
    try:
        (out if folder else out.parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{out} can't be written: {error}"
        raise OptionError(msg) from None


def _say(out: Path, rows: int, files: list[Path]) -> None:
    size = format_bytes(sum(file.stat().st_size for file in files))
    text = f"{out}: {rows:,} rows in {len(files)} files, {size}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
