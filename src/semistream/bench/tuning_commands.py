"""The commands that tune, and that show what tuning and the least memory are worth."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistream.bench.figure import draw
from semistream.bench.matrix import one_thread
from semistream.bench.show import terminal_table
from semistream.bench.store import compact, write_record
from semistream.bench.sustain import SustainGrid, measure_sustain
from semistream.bench.tables import sheets
from semistream.bench.tuning import Case, TuningGrid, begin, measure_tuning, tuned_cell
from semistream.bench.tuning_tables import curve_sheets, summary_lines
from semistream.cost.calibration.calibrate import calibrate
from semistream.cost.demand import Demand
from semistream.cost.knobs import KNOBS, knobs_of, page_axis
from semistream.cost.master_stream import master_rows_of, skewed_stream, stream_schema
from semistream.cost.profile import Profile, default_path
from semistream.cost.tune_measure import Sampling
from semistream.errors import BudgetError, OptionError
from semistream.master import build_master, open_master
from semistream.terminal import AsJson, console, errors, messages, progress_bar
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semistream.master import Master

__all__ = ["add_to"]

Output = Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")]
Figure = Annotated[Path | None, typer.Option(help="Draw it into this SVG file.")]
Data = Annotated[Path, typer.Option(help="Where masters are kept between runs.")]
Names = Annotated[
    list[str] | None, typer.Option("--algorithm", help="Only this one; repeat it for several.")
]
_LEAST_STREAM, _MOST_STREAM = 200_000, 4_000_000


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("tune")(tune)
    app.command("bench-tune")(bench_tune)
    app.command("bench-sustain")(bench_sustain)


def tune(  # noqa: PLR0913, PLR0917 - one argument an option
    master: Annotated[Path, typer.Option(help="The folder of the master table.")],
    memory: Annotated[str, typer.Option(help="The budget, such as 64MB.")],
    algorithm: Annotated[str, typer.Option(help="Whose memory is divided.")] = "cachejoin",
    skew: Annotated[float, typer.Option(help="The stream's Zipf exponent.")] = 1.0,
    stream_row: Annotated[int, typer.Option(help="Bytes of a stream row.")] = 20,
    read: Annotated[str, typer.Option(help="mapped or direct.")] = "direct",
    pages: Annotated[
        bool, typer.Option("--pages", help="Tune the page size of the store instead.")
    ] = False,
    measure: Annotated[bool, typer.Option(help="Also run the choices, in turn.")] = True,
    seconds: Annotated[float, typer.Option(help="How long each sample takes.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="How many samples.")] = 3,
    points: Annotated[int, typer.Option(help="Values of a knob that are run.")] = 8,
    scratch: Annotated[
        Path | None, typer.Option(help="Where --pages builds masters, for as long as it takes.")
    ] = None,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Divide an algorithm's memory for the highest rate: by the model, and by measurement.

    Both curves are printed, each as a share of its best, and what the model's choice loses. With
    --pages it is the page size of the store; to measure it, masters are built beside each other.
    """
    with messages():
        one_thread()
        opened, profile = open_master(master, read), _profile()
        sampling = Sampling(seconds, 10 * seconds, rounds)
        grid = _grid(opened, algorithm, pages, points, sampling)
        record = begin(asdict(grid), profile)
        with _scratch(scratch) as folder, _told() as say:
            masters = {opened.manifest.page_bytes: opened}
            if pages and measure:
                masters |= _at_other_sizes(opened, folder, say)
            case = _case(masters, parse_bytes(memory), skew, stream_row, measure)
            cell = tuned_cell(algorithm, case, profile.costs, grid, say)
        record["cells"].append({"exponent": skew, **cell})
        if figure is not None:
            draw(record, figure)
        _tell_tuned(record, as_json)


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder, prefix="tune-") as name:
        yield Path(name)


@contextmanager
def _told() -> Iterator[Callable[[str], None]]:
    """Show what is done now."""
    with errors.status("by the model") as status:
        yield status.update


def _grid(
    master: Master, algorithm: str, pages: bool, points: int, sampling: Sampling
) -> TuningGrid:
    if not pages:
        knobs_of(algorithm)
    return TuningGrid(
        algorithms=() if pages else (algorithm,),
        paged=(algorithm,) if pages else (),
        rows=master.rows,
        read=master.read,
        page_bytes=master.manifest.page_bytes,
        points=points,
        sampling=sampling,
    )


def _case(
    masters: dict[int, Master], memory: int, skew: float, stream_row: int, measure: bool
) -> Case:
    master = next(iter(masters.values()))
    values = master.statistics.values
    rows = min(_MOST_STREAM, max(_LEAST_STREAM, 2 * values))
    batches = skewed_stream(master, skew, stream_row, rows) if measure else ()
    demand = Demand.zipf(values, skew, master.pages)
    return Case(masters, memory, demand, batches, stream_schema(master, stream_row))


def _at_other_sizes(
    master: Master, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[int, Master]]:
    """Build the master with other pages; nothing of it stays."""
    axis = page_axis(master)
    sizes = [int(size) for size in axis.grid(0) if size != master.manifest.page_bytes]
    written = len(sizes) * master.manifest.pages_bytes
    free = shutil.disk_usage(folder).free
    if 2 * written > free:
        msg = (
            f"masters at {len(sizes)} page sizes take {format_bytes(written)}, and {folder} has "
            f"{format_bytes(free)} free; give another folder with --scratch, or --no-measure"
        )
        raise OptionError(msg)
    errors.print(f"writes about {format_bytes(written)} to {folder} meanwhile", highlight=False)
    for size in sizes:
        say(f"the master with pages of {format_bytes(size)}")
        path = folder / str(size)
        build_master(
            master_rows_of(master),
            path,
            key=list(master.key),
            page_bytes=size,
            filter=master.manifest.filter_words > 0,
        )
        yield size, open_master(path, master.read)


def _profile() -> Profile:
    """Give this machine's profile; where there is none, measure one quickly and keep it."""
    path = default_path()
    if path.exists():
        profile = Profile.load(path)
        for doubt in profile.doubts():
            errors.print(f"the profile may not hold here: {doubt}", style="yellow", markup=False)
        return profile
    with progress_bar() as bar:
        task = bar.add_task("calibrate", total=None)

        def say(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        profile = calibrate(quick=True, say=say)
    profile.save(path)
    return profile


def _tell_tuned(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(compact(record))
        return
    (cell,) = record["cells"]
    if "refused" in cell:
        raise BudgetError(cell["refused"])
    for sheet in curve_sheets(cell):
        console.print(terminal_table(sheet))
    for line in summary_lines(cell):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def bench_tune(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    figure: Figure = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = TuningGrid.rows,
    algorithm: Names = None,
    share: Annotated[
        list[float] | None, typer.Option(help="Only this budget, as a share of R; repeat it.")
    ] = None,
    skew: Annotated[
        list[float] | None, typer.Option(help="Only this Zipf exponent; repeat it.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="A small master, one budget, one skew.")] = False,
    seconds: Annotated[
        float, typer.Option(help="How long each sample takes.")
    ] = TuningGrid.sampling.seconds,
    rounds: Annotated[int, typer.Option(help="How many samples.")] = TuningGrid.sampling.rounds,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Tune every knob by the model and by measurement; show what the model's choice loses.

    MESHJOIN's buffer, CACHEJOIN's cache, k and l of Tuned X-HYBRIDJOIN, l of the Optimised one,
    and the page size of the store for HYBRIDJOIN and ADAPTIVE, for which masters are built at
    several page sizes.
    """
    with messages():
        grid = TuningGrid(
            rows=rows,
            shares=tuple(share or TuningGrid.shares),
            exponents=tuple(skew or TuningGrid.exponents),
            sampling=Sampling(seconds, 8 * seconds, rounds),
        )
        if algorithm:
            grid = replace(
                grid,
                algorithms=tuple(name for name in algorithm if name in KNOBS),
                paged=tuple(name for name in algorithm if name not in KNOBS),
            )
        grid = grid.quick() if quick else grid
        size = format_bytes(grid.written_bytes)
        errors.print(f"masters take about {size} in {data}", highlight=False)
        record = _follow(
            partial(measure_tuning, grid, data, _profile()), grid.cells, output, "the masters"
        )
        _show(record, figure, as_json)


def bench_sustain(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Output = None,
    figure: Figure = None,
    rows: Annotated[int, typer.Option(help="Rows of the master, R.")] = SustainGrid.rows,
    algorithm: Names = None,
    skew: Annotated[float, typer.Option(help="The Zipf exponent.")] = SustainGrid.exponent,
    seconds: Annotated[
        float, typer.Option(help="How long rows arrive, for each algorithm and budget.")
    ] = SustainGrid.seconds,
    load: Annotated[
        float, typer.Option(help="The rate, as a part of what 10 % of R gives by prediction.")
    ] = SustainGrid.load,
    warm: Annotated[
        float, typer.Option(help="Seconds for caches to settle, at most.")
    ] = SustainGrid.warm,
    data: Data = Path(".bench"),
    as_json: AsJson = False,
) -> None:
    """Let rows arrive at a rate, with 15 % more and 40 % less than the least memory for it."""
    with messages():
        grid = SustainGrid(
            algorithms=tuple(algorithm or SustainGrid.algorithms),
            rows=rows,
            exponent=skew,
            seconds=seconds,
            load=load,
            warm=warm,
        )
        run = partial(measure_sustain, grid, data, _profile())
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
