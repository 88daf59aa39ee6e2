"""The command ``semistream tune``."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistream.api import build_master
from semistream.cli.terminal import (
    BUDGETS,
    AsJson,
    console,
    errors,
    messages,
    progress_bar,
    terminal_table,
)
from semistream.cost.calibration.reads import reads_of, with_reads_of
from semistream.cost.planning.current import current_profile, given
from semistream.cost.planning.options import check_sample, given_only, pairs
from semistream.cost.planning.stream import stream_like, stream_of
from semistream.cost.planning.synthetic import (
    BATCH_ROWS,
    SyntheticStream,
    read_keys,
    synthetic_demand,
)
from semistream.cost.run import one_thread
from semistream.cost.tuning.cell import Case, tuned_cell
from semistream.cost.tuning.figure import draw_into, draw_tuning
from semistream.cost.tuning.knobs import knobs_of, page_axis
from semistream.cost.tuning.measure import Sampling
from semistream.cost.tuning.record import TuningGrid, begin, compact
from semistream.cost.tuning.rows import master_rows_of
from semistream.cost.tuning.show import curve_sheets, summary_lines
from semistream.errors import BudgetError, OptionError
from semistream.master import open_master
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from semistream.cost.planning.current import Current
    from semistream.cost.planning.stream import PlannedStream
    from semistream.cost.profile import Profile
    from semistream.master import FileMaster

__all__ = ["Costs", "Figure", "add_to", "unit_costs"]

Figure = Annotated[Path | None, typer.Option(help="Draw the result into this SVG file.")]
Costs = Annotated[
    Path | None, typer.Option("--profile", help="Unit costs, from semistream calibrate --output.")
]
_READ_SECONDS = 1.0
_USUAL = {"skew": 1.0, "stream_row": 20}
_LEAST_STREAM, _MOST_STREAM = 200_000, 4_000_000


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("tune", rich_help_panel=BUDGETS)(tune)


def tune(  # noqa: PLR0913, PLR0917 - one argument an option
    master: Annotated[Path, typer.Option(help="The folder of the master table.")],
    memory: Annotated[str, typer.Option(help="The budget, such as 64MB.")],
    algorithm: Annotated[str, typer.Option(help="The algorithm to tune.")] = "cachejoin",
    skew: Annotated[
        float | None, typer.Option(help="The Zipf exponent of the stream, 1 if not given.")
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            help="A sample of the real stream, files or kafka://host:port/topic, instead of "
            "--skew and --stream-row."
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(help="The key column of --sample, or stream=master; repeat for several."),
    ] = None,
    stream_row: Annotated[
        int | None, typer.Option(help="Bytes per stream row, 20 if not given.")
    ] = None,
    read: Annotated[str, typer.Option(help="mapped or direct.")] = "direct",
    pages: Annotated[
        bool, typer.Option("--pages", help="Tune the page size of the master instead.")
    ] = False,
    measure: Annotated[bool, typer.Option(help="Also run the settings, in turn.")] = True,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long each sample takes.")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="The number of samples.")] = 3,
    points: Annotated[int, typer.Option(min=1, help="How many values of each setting to run.")] = 8,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Where --pages builds temporary masters; beside the master by default."),
    ] = None,
    profile: Costs = None,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Find the settings with the highest rate, by the model and by measurement.

    A setting is how the memory of an algorithm is divided or, with --pages, the page size of the
    master, for which temporary masters are built. Both curves are printed, each as a share of its
    best, and what the choice of the model loses. The measured join is young, and its stream has no
    absent keys; the model predicts the same, or with --no-measure a join that runs for long.
    """
    with messages():
        asked = given_only(skew=skew, stream_row=stream_row)
        check_sample(sample, on, asked)
        asked = _USUAL | asked
        one_thread()
        opened, budget = open_master(master, read), parse_bytes(memory)
        stream = stream_of(opened, asked["skew"], 0.0, sample, pairs(on) or list(opened.key))
        grid = _grid(
            opened,
            algorithm,
            pages,
            points,
            Sampling(seconds, 10 * seconds, rounds, 2 * rounds + 1),
        )
        costs = unit_costs(profile, master.parent)
        record = begin(asdict(grid), costs)
        with _scratch(scratch or master.parent, pages and measure) as folder, _told() as say:
            masters = {opened.manifest.page_bytes: opened}
            if folder is not None:
                masters |= _at_other_sizes(opened, folder, say)
            case = _case(masters, budget, stream, asked["stream_row"], costs)
            case = _with_stream(case) if measure else case
            if profile is None:
                say("reads of this master")
                case = _with_reads(case)
            cell = tuned_cell(algorithm, case, grid, say)
        if "refused" in cell:
            raise BudgetError(cell["refused"])
        law = {"exponent": asked["skew"]} if sample is None else {"exponent": 0.0, "sample": sample}
        left_out = stream.demand.absent if measure else 0.0
        record["cells"].append({**law, "absent_left_out": left_out, **cell})
        if figure is not None:
            draw_into(figure, partial(draw_tuning, record))
        _tell_tuned(record, [stream.note, *_left_out(left_out)], as_json)


def _left_out(absent: float) -> Iterator[str]:
    if absent:
        yield f"Predicted and measured without the {absent:.1%} of rows that have no match."


@contextmanager
def _scratch(folder: Path, wanted: bool) -> Iterator[Path | None]:
    """Give a folder for masters, where any are built: on the disk of the one they stand beside."""
    if not wanted:
        yield None
        return
    if not os.access(folder, os.W_OK):
        msg = f"{folder} is no folder that can be written; give another one with --scratch"
        raise OptionError(msg)
    with tempfile.TemporaryDirectory(dir=folder, prefix="tune-") as name:
        yield Path(name)


@contextmanager
def _told() -> Iterator[Callable[[str], None]]:
    """Show what is done now."""
    with errors.status("by the model") as status:
        yield status.update


def _grid(
    master: FileMaster, algorithm: str, pages: bool, points: int, sampling: Sampling
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
    masters: dict[int, FileMaster],
    memory: int,
    stream: PlannedStream,
    stream_row: int,
    profile: Profile,
) -> Case:
    size = stream.row_bytes or stream_row
    schema = stream_like(next(iter(masters.values())), size, stream.columns)
    return Case(masters, memory, stream.demand, (), schema, profile.costs, {})


def _with_stream(case: Case) -> Case:
    """Draw stream rows beforehand, so that this is not timed; they are what is predicted for."""
    demand = synthetic_demand(case.demand)
    synthetic = SyntheticStream(case.spec, demand, read_keys(case.master))
    rows = min(_MOST_STREAM, max(_LEAST_STREAM, 2 * case.master.statistics.values))
    batches = synthetic.batches()
    drawn = tuple(next(batches) for _ in range(-(-rows // BATCH_ROWS)))
    return case._replace(demand=demand, batches=drawn)


def _with_reads(case: Case) -> Case:
    """Measure what reads cost where the masters lie."""
    smallest = case.masters[min(case.masters)]
    costs = with_reads_of(case.costs, case.master, _READ_SECONDS)
    return case._replace(costs=costs, small_reads=reads_of(smallest, _READ_SECONDS))


def _at_other_sizes(
    master: FileMaster, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[int, FileMaster]]:
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


def _tell_tuned(record: dict[str, Any], notes: Iterable[str], as_json: bool) -> None:
    if as_json:
        typer.echo(compact(record))
        return
    (cell,) = record["cells"]
    for sheet in curve_sheets(cell):
        console.print(terminal_table(sheet))
    for line in (*summary_lines(cell), *notes):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def unit_costs(path: Path | None, folder: Path) -> Profile:
    """Give unit costs: those of a file, or this machine's, measured where there are none.

    Where they are from is told, and why they may not hold.
    """
    profile, note = given(path) if path is not None else _current(folder)
    errors.print(note, highlight=False, markup=False, soft_wrap=True)
    return profile


def _current(folder: Path) -> Current:
    folder.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        task = bar.add_task("unit costs", total=None)

        def say(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        return current_profile(folder, say)
