"""The commands that measure joins without Spark, its workers and builds; and that show records."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.engine.build import measure_build
from benchmarks.engine.confined import ConfinedGrid, measure_confined
from benchmarks.engine.drift import DriftGrid, measure_drift
from benchmarks.engine.growth import GrowthGrid, best_published, measure_growth
from benchmarks.engine.matrix import SLOW, Grid, cell_of, measure
from benchmarks.engine.stores import StoreGrid, measure_stores
from benchmarks.extras import spark_needed
from benchmarks.figure import draw
from benchmarks.show import between_marks, markdown
from benchmarks.spark.grid import SparkGrid
from benchmarks.store import read_record, write_record
from benchmarks.summary import candidate
from benchmarks.tables import sheets
from benchmarks.workload import WORKLOADS
from semistream.algorithms import algorithms as known_algorithms
from semistream.cli.terminal import (
    AsJson,
    build_bar,
    console,
    errors,
    messages,
    progress_bar,
    terminal_table,
)
from semistream.cost.tuning.record import compact
from semistream.errors import OptionError
from semistream.system.machine import describe
from semistream.units import format_bytes, parse_bytes

__all__ = ["add_to"]

Output = Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")]
Figure = Annotated[Path | None, typer.Option(help="Draw the record into this SVG file.")]
Data = Annotated[Path, typer.Option(help="Where masters are kept between runs.")]
Names = Annotated[
    list[str] | None, typer.Option("--algorithm", help="Only this algorithm; repeat for several.")
]
_WORKLOAD_NAMES = ", ".join(workload.name for workload in WORKLOADS)
_QUICK_EXPONENTS, _QUICK_SHARES = (1.0,), (0.01, 0.10)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("matrix")(bench)
    app.command("build")(bench_build)
    app.command("stores")(bench_stores)
    app.command("confined")(bench_confined)
    app.command("growth")(bench_growth)
    app.command("drift")(bench_drift)
    app.command("spark")(bench_spark)
    app.command("show")(bench_show)


def bench(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = 2_000_000,
    algorithm: Names = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this one of {_WORKLOAD_NAMES}; repeat for several."),
    ] = None,
    skew: Annotated[
        list[float] | None, typer.Option(help="Only this Zipf exponent; repeat for several.")
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="Only this budget, as a share of R; repeat for several."),
    ] = None,
    read: Annotated[list[str] | None, typer.Option(help="Only mapped or direct reads.")] = None,
    quick: Annotated[bool, typer.Option(help="Only Zipf 1, at 1 and 10 %.")] = False,
    resume: Annotated[
        bool, typer.Option(help="Keep the cells that --output has, and measure the others.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Seconds per sample.")] = Grid.seconds,
    rounds: Annotated[int, typer.Option(help="The number of samples.")] = Grid.rounds,
    page_bytes: Annotated[str, typer.Option(help="The size of a page.")] = Grid.page_bytes,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure every algorithm at every budget, skew, way of reading and workload.

    INLJ and Derakhshan, far slower than the others, are only in the 1:1 cells of Zipf 1. In the
    same rounds runs a bound: Arrow's gather from all of R in memory. The record is written after
    every cell, so an interrupted run can be resumed.
    """
    with messages():
        grid = Grid(
            algorithms=tuple(algorithm or known_algorithms()),
            workloads=tuple(w.of_rows(rows) for w in WORKLOADS if w.name in _workloads(workload)),
            exponents=tuple(skew or (_QUICK_EXPONENTS if quick else Grid.exponents)),
            shares=tuple(share or (_QUICK_SHARES if quick else Grid.shares)),
            reads=tuple(read or Grid.reads),
            seconds=seconds,
            rounds=rounds,
            page_bytes=page_bytes,
            feed_rows=2 * rows,
        )
        record = _run_matrix(grid, output, resume, data)
        _show(record, as_json)


def _workloads(given: list[str] | None) -> list[str]:
    names = [workload.name for workload in WORKLOADS]
    for name in given or ():
        if name not in names:
            raise OptionError.unknown("workload", name, names)
    return given or names


def _run_matrix(grid: Grid, output: Path | None, resume: bool, data: Path) -> dict[str, Any]:
    record = _begin(grid, output if resume else None)
    have = {cell_of(cell) for cell in record["cells"]}
    with progress_bar() as bar:
        task = bar.add_task("", total=len(grid.cells), completed=len(have & set(grid.cells)))
        for cell in measure(grid, data, have, lambda what: bar.update(task, description=what)):
            record["cells"].append(cell)
            bar.advance(task)
            _store(record, output)
    return record


def _begin(grid: Grid, earlier: Path | None) -> dict[str, Any]:
    """Make a record without cells, or take an earlier one with those that are as they would be."""
    record: dict[str, Any] = {
        "kind": "matrix",
        "what": "service rate in stream rows a second, one thread",
        "machine": describe(),
        "grid": grid.as_dict(),
        "cells": [],
    }
    if earlier is None or not earlier.exists():
        return record
    before = read_record(earlier)
    for what in ("seconds", "rounds", "feed_rows", "page_bytes", "seed"):
        if before["grid"][what] != record["grid"][what]:
            msg = f"{earlier} was measured with {what}={before['grid'][what]}; resume with the same"
            raise OptionError(msg)
    if before["machine"]["source"] != record["machine"]["source"]:
        msg = f"the code has changed since {earlier} was begun; measure all cells anew"
        raise OptionError(msg)
    resumed = [*before.get("resumed", []), datetime.now(UTC).isoformat(timespec="seconds")]
    kept = [cell for cell in before["cells"] if _stays(cell, grid)]
    both = _union(before["grid"], record["grid"])
    return record | {"machine": before["machine"], "grid": both, "resumed": resumed, "cells": kept}


def _union(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Give a grid of all that two runs asked for."""
    lists = {name: value for name, value in before.items() if isinstance(value, list)}
    more = {name: [x for x in now[name] if x not in value] for name, value in lists.items()}
    return now | {name: value + more[name] for name, value in lists.items()}


def _stays(cell: dict[str, Any], grid: Grid) -> bool:
    """Tell whether a cell is not asked for, or has the algorithms that are: they share rounds."""
    measured = {*cell["rates"], *cell.get("refused", {})}
    asked = set(grid.algorithms_of(cell_of(cell)))
    return cell_of(cell) not in grid.cells or measured == asked


def _store(record: dict[str, Any], output: Path | None) -> None:
    if output is not None:
        write_record(record, output)


def _show(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(compact(record))
        return
    for sheet in sheets(record):
        console.print(terminal_table(sheet))


def bench_stores(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    rows: Annotated[int, typer.Option(help="Rows of the master for all stores.")] = 2_000_000,
    large: Annotated[
        int, typer.Option(help="Rows of a larger master, for DuckDB alone; 0 leaves it out.")
    ] = 20_000_000,
    engine: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this one of {', '.join(StoreGrid.engines)}; repeat for several."),
    ] = None,
    memory: Annotated[str, typer.Option(help="The budget, also of stores' own caches.")] = "64MB",
    seconds: Annotated[float, typer.Option(help="Seconds per sample.")] = StoreGrid.seconds,
    rounds: Annotated[int, typer.Option(help="The number of samples.")] = StoreGrid.rounds,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure DuckDB, LMDB, RocksDB and SQLite, and joins with all of R in memory, beside ours.

    Each joins the stream chunk by chunk on one thread, with the master in a file of its own or all
    of it in memory (Arrow, DuckDB and Polars), and returns the same columns as Arrow; the rows are
    compared before it is timed. The memory of each is measured in a process of its own.
    """
    with messages():
        names = tuple(engine or StoreGrid.engines)
        for name in names:
            if name not in StoreGrid.engines:
                raise OptionError.unknown("engine", name, StoreGrid.engines)
        small = StoreGrid(
            candidate(known_algorithms()),
            rows=rows,
            engines=names,
            memory=parse_bytes(memory),
            chunks=tuple(sorted({min(chunk, rows) for chunk in StoreGrid.chunks})),
            seconds=seconds,
            rounds=rounds,
        )
        grids = [small]
        if large and "duckdb" in names:
            chunks = tuple(min(chunk, large) for chunk in StoreGrid.chunks)
            grids.append(replace(small, rows=large, engines=("duckdb",), chunks=chunks))
        with errors.status("") as status:
            record = measure_stores(grids, data, status.update)
        _store(record, output)
        _show(record, as_json)


def bench_confined(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = ConfinedGrid.rows,
    algorithm: Names = None,
    share: Annotated[
        list[float] | None, typer.Option(help="A budget, as a share of R; repeat for several.")
    ] = None,
    slack: Annotated[
        str, typer.Option(help="Memory beyond the budget and what the process itself needs.")
    ] = "16MB",
    seconds: Annotated[float, typer.Option(help="Seconds per sample.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="The number of samples.")] = ConfinedGrid.rounds,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure mapped reads in a memory cgroup, where the page cache can't help.

    Each sample is taken by a process in a group limited to what the process needs anyway, the
    budget, and some slack. It needs the right to create memory cgroups, of version 1 or 2; without
    it there is a message and no record.
    """
    with messages():
        grid = ConfinedGrid(
            tuple(algorithm or (name for name in known_algorithms() if name not in SLOW)),
            rows=rows,
            shares=tuple(share or ConfinedGrid.shares),
            slack=parse_bytes(slack, "slack"),
            seconds=seconds,
            rounds=rounds,
        )
        with progress_bar() as bar:
            task = bar.add_task("", total=grid.samples + 1)
            record = measure_confined(
                grid, data, lambda what: bar.update(task, description=what, advance=1)
            )
        _store(record, output)
        _show(record, as_json)


def bench_growth(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    figure: Figure = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Rows of a master; repeat for several.")
    ] = None,
    algorithm: Names = None,
    matrix: Annotated[
        Path,
        typer.Option(help="A record of matrix, by which to choose the two best published ones."),
    ] = Path("results/bench.json"),
    read: Annotated[list[str] | None, typer.Option(help="Only mapped or direct reads.")] = None,
    memory: Annotated[str, typer.Option(help="The constant budget.")] = "32MB",
    seconds: Annotated[float, typer.Option(help="Seconds per sample.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="The number of samples.")] = GrowthGrid.rounds,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure masters of growing size, at 5 % of R and at a constant budget.

    Compares ours with the two best published algorithms. Masters of up to 20M rows take 5 GB.
    """
    with messages():
        sizes = tuple(rows or GrowthGrid.rows)
        grid = GrowthGrid(
            tuple(algorithm or best_published(_earlier(matrix), known_algorithms())),
            rows=sizes,
            reads=tuple(read or GrowthGrid.reads),
            memory=parse_bytes(memory),
            seconds=seconds,
            rounds=rounds,
            feed_rows=min(GrowthGrid.feed_rows, 4 * max(sizes)),
        )
        record: dict[str, Any] = {}
        with progress_bar() as bar:
            task = bar.add_task("", total=grid.points)
            for record in measure_growth(grid, data, lambda w: bar.update(task, description=w)):
                bar.advance(task)
                _store(record, output)
        if figure is not None:
            draw(record, figure)
        _show(record, as_json)


def _earlier(path: Path) -> dict[str, Any] | None:
    """Give a record if there is one that this version can read."""
    try:
        return read_record(path)
    except OptionError:
        return None


def bench_drift(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    figure: Figure = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = DriftGrid.rows,
    algorithm: Names = None,
    read: Annotated[list[str] | None, typer.Option(help="Only mapped or direct reads.")] = None,
    repeats: Annotated[int, typer.Option(help="How many times to join the stream.")] = 3,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure how soon the rate is back at 90 % after the hot keys change."""
    with messages():
        names = algorithm or dict.fromkeys([candidate(known_algorithms()), "cachejoin"])
        grid = DriftGrid(
            tuple(names),
            rows=rows,
            reads=tuple(read or DriftGrid.reads),
            before=rows,
            after=2 * rows,
            slice_rows=max(1, rows // 10),
            repeats=repeats,
        )
        with progress_bar() as bar:
            task = bar.add_task("", total=grid.runs + 1)
            record = measure_drift(
                grid, data, lambda what: bar.update(task, description=what, advance=1)
            )
        _store(record, output)
        if figure is not None:
            draw(record, figure)
        _show(record, as_json)


def bench_spark(
    output: Output = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Rows of a master; repeat for several.")
    ] = None,
    batch_rows: Annotated[
        list[int] | None, typer.Option(help="Rows per micro-batch; repeat for several.")
    ] = None,
    pause: Annotated[
        float, typer.Option(help="Seconds of idle time; Spark ends idle Python workers after 60.")
    ] = SparkGrid.pause,
    quick: Annotated[bool, typer.Option(help="Only the smallest R, and few batches.")] = False,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Measure a batch of one row, how evenly routing loads tasks, and how warm workers stay.

    In micro-batches of files, into no sink, on local[2] with 4 GB for the driver; warmth also after
    a pause and after a worker was killed. Rates beside Spark's own joins are in ``peers``.
    """
    with messages(), spark_needed():
        from benchmarks.spark.measure import engines_for, measure_spark, steps  # noqa: PLC0415

        plain = SparkGrid(
            rows=tuple(rows or SparkGrid.rows),
            batch_rows=tuple(batch_rows or SparkGrid.batch_rows),
            pause=pause,
        )
        grid, record = plain.quick() if quick else plain, {}
        with engines_for(grid) as engines, progress_bar() as bar:
            task = bar.add_task("", total=steps())

            def say(what: str) -> None:
                bar.update(task, description=what)
                if not errors.is_terminal:  # where a bar is not drawn
                    errors.print(what, highlight=False)

            for record in measure_spark(grid, data.absolute(), engines, say):
                bar.advance(task)
                _store(record, output)
        _show(record, as_json)


def bench_show(
    record: Annotated[list[Path], typer.Argument(help="Records of earlier benchmarks.")],
    into: Annotated[
        Path | None,
        typer.Option(
            "--markdown", help="Put the tables into this file, between <!-- KIND --> marks."
        ),
    ] = None,
) -> None:
    """Show records as tables, or put them into a Markdown file."""
    with messages():
        for path in record:
            found = read_record(path)
            if into is None:
                _show(found, False)
            else:
                tables = markdown(sheets(found))
                into.write_text(between_marks(into.read_text(), found["kind"], tables))


def bench_build(
    rows: Annotated[int, typer.Option(help="Rows of the master.")] = 20_000_000,
    row_bytes: Annotated[int, typer.Option(help="Bytes per row.")] = 120,
    memory: Annotated[str, typer.Option(help="Memory for sorting.")] = "1GB",
    output: Output = None,
) -> None:
    """Build a large master from unsorted rows; show the time and the memory that it took."""
    with messages(), tempfile.TemporaryDirectory(dir=".") as folder:
        with build_bar() as progress:
            record = measure_build(rows, row_bytes, memory, Path(folder) / "master", progress)
        _store(record, output)
        console.print(
            f"{rows:,} rows × {row_bytes} B in {record['seconds']:.1f} s "
            f"({record['rows_a_second']:,.0f} rows/s); memory={memory}, the process grew by "
            f"{format_bytes(record['grown_bytes'])}; {record['pages']:,} pages verified",
            highlight=False,
        )
