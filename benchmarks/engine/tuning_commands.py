"""The commands that show what tuning, and the least memory for a rate, are worth."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.engine.sustain import SustainGrid, measure_sustain
from benchmarks.engine.tuning import cells, measure_tuning, small, written_bytes
from benchmarks.figure import draw
from benchmarks.store import write_record
from benchmarks.tables import sheets
from semistream.cli.terminal import AsJson, console, errors, messages, progress_bar, terminal_table
from semistream.cost.tuning.command import Costs, Figure, unit_costs
from semistream.cost.tuning.knobs import KNOBS
from semistream.cost.tuning.measure import Sampling
from semistream.cost.tuning.record import TuningGrid, compact
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["add_to"]

Output = Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")]
Data = Annotated[Path, typer.Option(help="Where masters are kept between runs.")]
Names = Annotated[
    list[str] | None, typer.Option("--algorithm", help="Only this algorithm; repeat for several.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("tune")(bench_tune)
    app.command("sustain")(bench_sustain)


def bench_tune(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    figure: Figure = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = TuningGrid.rows,
    algorithm: Names = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="Only this budget, as a share of R; repeat for several."),
    ] = None,
    skew: Annotated[
        list[float] | None, typer.Option(help="Only this Zipf exponent; repeat for several.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="A small master, one budget, one skew.")] = False,
    seconds: Annotated[
        float, typer.Option(help="Seconds per sample.")
    ] = TuningGrid.sampling.seconds,
    rounds: Annotated[
        int, typer.Option(help="Samples of each setting; twice as many of the best two.")
    ] = TuningGrid.sampling.rounds,
    profile: Costs = None,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Tune every setting by the model and by measurement; show what the model's choice loses.

    MESHJOIN's buffer, CACHEJOIN's cache, k and l of Tuned X-HYBRIDJOIN, l of the Optimised one,
    and the page size of the store for HYBRIDJOIN and ADAPTIVE, for which masters are built at
    several page sizes.
    """
    with messages():
        grid = TuningGrid(
            rows=rows,
            shares=tuple(share or TuningGrid.shares),
            exponents=tuple(skew or TuningGrid.exponents),
            sampling=Sampling(seconds, 6 * seconds, rounds, 2 * rounds + 1),
        )
        if algorithm:
            grid = replace(
                grid,
                algorithms=tuple(name for name in algorithm if name in KNOBS),
                paged=tuple(name for name in algorithm if name not in KNOBS),
            )
        grid = small(grid) if quick else grid
        size = format_bytes(written_bytes(grid))
        errors.print(f"masters take about {size} in {data}", highlight=False)
        record = _follow(
            partial(measure_tuning, grid, data, unit_costs(profile, data)),
            cells(grid),
            output,
            "the masters",
        )
        _show(record, figure, as_json)


def bench_sustain(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    figure: Figure = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = SustainGrid.rows,
    algorithm: Names = None,
    skew: Annotated[float, typer.Option(help="The Zipf exponent.")] = SustainGrid.exponent,
    seconds: Annotated[
        float, typer.Option(help="How many seconds rows arrive, for each algorithm and budget.")
    ] = SustainGrid.seconds,
    load: Annotated[
        float,
        typer.Option(help="The arrival rate, as a share of what 10 % of R is predicted to give."),
    ] = SustainGrid.load,
    warm: Annotated[
        float, typer.Option(help="At most this many seconds for caches to settle.")
    ] = SustainGrid.warm,
    profile: Costs = None,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Let rows arrive at a rate, with 15 % more and 40 % less memory than it needs."""
    with messages():
        grid = SustainGrid(
            algorithms=tuple(algorithm or SustainGrid.algorithms),
            rows=rows,
            exponent=skew,
            seconds=seconds,
            load=load,
            warm=warm,
            read_seconds=min(SustainGrid.read_seconds, seconds / 10),
        )
        run = partial(measure_sustain, grid, data, unit_costs(profile, data))
        record = _follow(run, grid.runs, output, "the master")
        _show(record, figure, as_json)


def _follow(
    measure: Callable[[Callable[[str], None]], Iterator[dict[str, Any]]],
    steps: int,
    output: Path | None,
    first: str,
) -> dict[str, Any]:
    """Show how far it is; write the record after every step."""
    record: dict[str, Any] = {}
    with progress_bar() as bar:
        task = bar.add_task(first, total=steps)
        for record in measure(lambda what: bar.update(task, description=what)):
            bar.advance(task)
            if output is not None:
                write_record(record, output)
    return record


def _show(record: dict[str, Any], figure: Path | None, as_json: bool) -> None:
    if figure is not None:
        draw(record, figure)
    if as_json:
        typer.echo(compact(record))
        return
    for sheet in sheets(record):
        console.print(terminal_table(sheet))
