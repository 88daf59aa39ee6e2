"""The command ``python -m benchmarks model``: how well the cost models predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.engine.model import ModelGrid, measure_model, predicted_again, run_offs
from benchmarks.figure import draw
from benchmarks.store import read_record, write_record
from benchmarks.tables import sheets
from semistream.cli.terminal import AsJson, console, errors, messages, progress_bar, terminal_table
from semistream.cost.calibration.calibrate import calibrate
from semistream.cost.calibration.turns import Pace
from semistream.cost.models import MODELS, check_model
from semistream.cost.planning.current import given
from semistream.cost.profile import FORMAT, Profile
from semistream.cost.tuning.record import compact
from semistream.cost.unit_costs import UnitCosts
from semistream.errors import OptionError

__all__ = ["add_to"]

_QUICK = {"rows": (200_000,), "shares": (0.05, 0.2), "exponents": (1.0,), "pace": Pace(0.1, 4, 0.5)}


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("model")(bench_model)


def bench_model(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the record into this SVG file.")] = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="Only this algorithm; repeat for several.")
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Only this size of R; repeat for several.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="Unit costs, from calibrate --output; measured first if not given."),
    ] = None,
    again: Annotated[
        bool, typer.Option(help="Measure nothing; predict again for the record of --output.")
    ] = False,
    run_off: Annotated[
        bool, typer.Option(help="Measure only the run-offs that the record of --output lacks.")
    ] = False,
    resume: Annotated[
        bool, typer.Option(help="Continue the record of --output, with its unit costs.")
    ] = False,
    quick: Annotated[bool, typer.Option(help="A small master, two budgets, Zipf 1.")] = False,
    data: Annotated[Path, typer.Option(help="Where masters are kept between runs.")] = Path(
        ".bench"
    ),
    as_json: AsJson = False,
) -> None:
    """Compare predicted and measured service rates, for every algorithm.

    Unit costs are measured first. Then, setting by setting, rates are predicted from them and
    measured; the speed of the disk is timed at the same time, and taken into account. The record
    is written after every setting.
    """
    with messages():
        if again:
            record = _again(output, data)
        elif run_off:
            record = _run_offs(output, data)
        else:
            few: dict[str, Any] = _QUICK if quick else {}
            few |= {"rows": tuple(rows)} if rows else {}
            grid = ModelGrid(_names(algorithm), **few)
            before = _record_of(output, "--resume") if resume else None
            costs = _profile_of(before) if before else _profile(profile, quick, data)
            record = _run(grid, output, data, costs, before)
        if figure is not None:
            draw(record, figure)
        if as_json:
            typer.echo(compact(record))
            return
        for sheet in sheets(record):
            console.print(terminal_table(sheet))


def _names(asked: list[str] | None) -> tuple[str, ...]:
    for name in asked or ():
        check_model(name)
    return tuple(asked or MODELS)


def _record_of(output: Path | None, option: str) -> dict[str, Any]:
    if output is None:
        msg = f"{option} is for a record that is there: say which one with --output"
        raise OptionError(msg)
    record = read_record(output)
    if record["profile"].get("format") != FORMAT:
        msg = f"{output}: its unit costs are of older models; measure anew, without {option}"
        raise OptionError(msg)
    return record


def _again(output: Path | None, data: Path) -> dict[str, Any]:
    record = _record_of(output, "--again")
    return _written(predicted_again(record, data, _profile_of(record).costs), output)


def _run_offs(output: Path | None, data: Path) -> dict[str, Any]:
    record = _record_of(output, "--run-off")
    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        offs = run_offs(record, data, lambda what: bar.update(task, description=what))
        for more in offs:
            _written(more, output)
    return record


def _written(record: dict[str, Any], output: Path | None) -> dict[str, Any]:
    if output is not None:
        write_record(record, output)
    return record


def _profile_of(record: dict[str, Any]) -> Profile:
    told = record["profile"]
    return Profile(UnitCosts.from_dict(told["costs"]), told["machine"], quick=False)


def _profile(path: Path | None, quick: bool, data: Path) -> Profile:
    if path is not None:
        profile, note = given(path)
        errors.print(note, highlight=False, markup=False, soft_wrap=True)
        return profile
    data.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        task = bar.add_task("calibrating", total=None)
        return calibrate(
            data,
            quick=quick,
            say=lambda what, done, total: bar.update(
                task, description=what, completed=done, total=total
            ),
        )


def _run(
    grid: ModelGrid,
    output: Path | None,
    data: Path,
    profile: Profile,
    before: dict[str, Any] | None,
) -> dict[str, Any]:
    record: dict[str, Any] = before or {}
    with progress_bar() as bar:
        task = bar.add_task("", total=grid.cells, completed=len(record.get("cells", [])))
        for record in measure_model(
            grid, data, profile, lambda what: bar.update(task, description=what), before
        ):
            bar.advance(task)
            _written(record, output)
    return record
