"""The commands that plan: ``semistream plan`` and ``semistream calibrate``."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.terminal import (
    BUDGETS,
    AsJson,
    console,
    errors,
    messages,
    progress_bar,
    terminal_table,
)
from semistream.cost.planning.chart import chart
from semistream.cost.planning.current import busy, calibrated
from semistream.cost.planning.figure import draw_plan
from semistream.cost.planning.measure import measure as measure_winner
from semistream.cost.planning.options import check_sample, given_only, pairs
from semistream.cost.planning.planner import plan as make_plan
from semistream.cost.planning.show import cluster_sheet, planning_sheets
from semistream.cost.planning.show_costs import cost_sheets
from semistream.cost.profile import default_path
from semistream.errors import OptionError
from semistream.master import open_master
from semistream.units import parse_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from semistream.cost.planning.current import Say
    from semistream.cost.planning.measure import Measured
    from semistream.cost.planning.result import Planning
    from semistream.cost.sheet import Sheet

__all__ = ["add_to"]

_LONG = 8  # characters: longer heads have two lines


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("plan", rich_help_panel=BUDGETS)(plan)
    app.command("calibrate", rich_help_panel=BUDGETS)(calibrate)


def plan(  # noqa: PLR0913, PLR0917 - one argument an option
    master: Annotated[Path, typer.Option(help="The folder of the master table.")],
    memory: Annotated[
        str | None, typer.Option(help="A budget, such as 64MB: what rate does it give?")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="A rate in rows per second, such as 200k: how much memory does it need?"),
    ] = None,
    skew: Annotated[
        float | None,
        typer.Option(help="The Zipf exponent of the stream, 1 if not given; 0 is uniform."),
    ] = None,
    absent: Annotated[
        float | None,
        typer.Option(help="The share of stream rows without a match, 0 if not given."),
    ] = None,
    stream_row: Annotated[
        int | None, typer.Option(help="Bytes per stream row, with its key; 20 if not given.")
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            help="A sample of the real stream, files or kafka://host:port/topic, instead of "
            "--skew, --absent and --stream-row."
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(help="The key column of --sample, or stream=master; repeat for several."),
    ] = None,
    how: Annotated[str, typer.Option(help="inner, left, semi or anti.")] = "inner",
    select: Annotated[
        list[str] | None,
        typer.Option(help="A master column to output; repeat for several. All by default."),
    ] = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="Only this algorithm; repeat for several.")
    ] = None,
    read: Annotated[
        str, typer.Option(help="direct: nothing is held in memory beside the budget; or mapped.")
    ] = "direct",
    cluster: Annotated[
        int | None,
        typer.Option(help="Number of workers; --memory is then for each, --rate for all together."),
    ] = None,
    batch_rows: Annotated[
        str | None,
        typer.Option(help="Compare with a batch join of this many stream rows, such as 200k."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Unit costs to use, from semistream calibrate --output.")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Run the best one too, and compare with the prediction."),
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="How long --measure runs, 5 if not given.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw rate over memory into this SVG file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the rate that a budget gives, or the memory that a rate needs, for every algorithm.

    Give --memory or --rate. The first call on a machine measures its unit costs, which takes some
    15 seconds; semistream calibrate measures them more carefully. Predictions are for an endless
    stream and a join that has warmed up.
    """
    with messages():
        law = given_only(skew=skew, absent=absent, stream_row=stream_row)
        check_sample(sample, on, law)
        _check_measure(measure, seconds, cluster)
        with _progress() as say:
            planning = make_plan(
                open_master(master, read),
                memory=memory,
                rate=rate,
                sample=sample,
                on=pairs(on),
                how=how,
                select=select or None,
                algorithms=algorithm or None,
                cluster=cluster,
                batch_rows=None if batch_rows is None else parse_count(batch_rows, "batch_rows"),
                profile=profile,
                say=say,
                **law,
            )
            if figure is not None:
                say("draw", 0, 1)
                draw_plan(planning, figure)
            measured = _measured(planning, seconds, say) if measure else None
        _show(planning, measured, as_json)


def _check_measure(measure: bool, seconds: float | None, cluster: int | None) -> None:
    if measure and cluster is not None:
        msg = "--measure runs one join here, not those of a --cluster; give one of them"
        raise OptionError(msg)
    if seconds is not None and not measure:
        msg = f"--seconds {seconds:g} is how long --measure counts; give --measure as well"
        raise OptionError(msg)


def _measured(planning: Planning, seconds: float | None, say: Say) -> Measured | None:
    """Run the winner; where there is none, say so."""
    if planning.winner is None:
        text = "Nothing was measured: no algorithm is predicted to reach the rate, with any memory."
        errors.print(text, highlight=False, markup=False, soft_wrap=True)
        return None
    say(f"run {planning.winner.algorithm}", 0, 1)
    return measure_winner(planning, **given_only(seconds=seconds))


@contextmanager
def _progress() -> Iterator[Say]:
    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)


def _show(planning: Planning, measured: Measured | None, as_json: bool) -> None:
    if as_json:
        more = {"measured": measured.as_dict()} if measured else {}
        typer.echo(json.dumps(planning.as_dict() | more, indent=2))
        return
    for sheet in planning_sheets(planning):
        console.print(_table(sheet))
    if planning.winner:
        name, memory = planning.winner.algorithm, planning.winner.memory
        _say(f"\npredicted rows/s of {name} over memory\n{chart(planning.curve(name), memory)}\n")
    if planning.cluster:
        console.print(_table(cluster_sheet(planning.cluster)))
    for sentence in planning.advice:
        _say(f"! {sentence}")
    for note in planning.notes:
        _say(note)
    if measured:
        _say(str(measured))


def _table(sheet: Sheet) -> Table:
    """Draw a sheet without lines between its columns, so that it fits into 80 characters."""
    table = terminal_table(sheet)
    table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    table.title_justify = table.caption_justify = "left"
    for column, head in zip(table.columns, sheet.heads, strict=True):
        column.no_wrap = True
        column.header = "\n".join(head.rsplit(" ", 1)) if len(head) > _LONG else head
    return table


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _target(path: Path) -> Path:
    """Refuse a file that cannot be written, before minutes are spent."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{path} cannot be written ({error.strerror}); see --output") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise OptionError(f"{path} is no file that can be written; give another one with --output")
    return path


def calibrate(
    quick: Annotated[
        bool, typer.Option("--quick", help="About 15 seconds instead of ten minutes; less exact.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the profile here, instead of where plan looks for it."),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="A folder on the disk that holds your masters; it is left clean.")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Measure what operations cost on this machine, for semistream plan.

    It times reads, rows and loops with the real kernels and the real store, and fits what each
    algorithm does beyond its model. It takes about ten minutes; run nothing else meanwhile. The
    profile is saved with a description of the machine.
    """
    with messages():
        path = _target(output or default_path())
        if not os.access(data, os.W_OK):
            raise OptionError(f"--data {data} is no folder that can be written; give another one")
        with _progress() as say:
            profile = calibrated(data, quick=quick, say=say)
        profile.save(path)
        if as_json:
            shown = {"path": str(path), "quick": quick, "machine": dict(profile.machine)}
            typer.echo(json.dumps(shown | {"costs": profile.costs.as_dict()}, indent=2))
            return
        for sheet in cost_sheets(profile.costs):
            console.print(_table(sheet))
        _say(f"The profile was written to {path}.{busy(profile)}")
