"""The commands ``semistream plan`` and ``semistream tune``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistream.cli.terminal import AsJson, console, errors, messages
from semistream.errors import OptionError
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["plan", "tune"]

MasterPath = Annotated[Path, typer.Option(help="The folder of the master table.")]
Skew = Annotated[float | None, typer.Option(help="The stream's Zipf exponent, 1 if not given.")]
Sample = Annotated[
    str | None,
    typer.Option(
        help="A sample of the stream, files or kafka://host:port/topic, instead of --skew, "
        "--absent and --stream-row."
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option(help="The key column of --sample, or stream=master; repeat for several."),
]
StreamRow = Annotated[int | None, typer.Option(help="Bytes per stream row, 20 if not given.")]
Costs = Annotated[
    Path | None,
    typer.Option(
        "--machine", help="Unit costs in a JSON or TOML file, instead of measuring this machine."
    ),
]
Disk = Annotated[
    list[str] | None,
    typer.Option("--cost", help="What if: a unit cost such as read=0.004; repeat for several."),
]
Read = Annotated[str, typer.Option(help="mapped or direct.")]


def plan(  # noqa: PLR0913, PLR0917 - one argument an option
    master: MasterPath,
    memory: Annotated[str | None, typer.Option(help="A budget, such as 64MB.")] = None,
    rate: Annotated[
        str | None, typer.Option(help="Rows a second, such as 200k: find the least memory.")
    ] = None,
    skew: Skew = None,
    absent: Annotated[
        float | None, typer.Option(help="The share of rows without a match, 0 if not given.")
    ] = None,
    sample: Sample = None,
    on: On = None,
    stream_row: StreamRow = None,
    how: Annotated[str, typer.Option(help="inner, left, semi or anti.")] = "inner",
    algorithm: Annotated[str, typer.Option(help="The algorithm of the join.")] = "adaptive",
    read: Read = "mapped",
    executors: Annotated[int, typer.Option(min=1, help="Executors of Spark.")] = 1,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks an executor runs at once; its processors.")
    ] = None,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows of a micro-batch.")] = 1_000_000,
    host_memory: Annotated[
        str | None, typer.Option(help="Memory a host has for mapped pages; what is free here.")
    ] = None,
    machine: Costs = None,
    cost: Disk = None,
    measure_machine: Annotated[
        bool, typer.Option("--measure-machine", help="Measure the unit costs again.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulated stream.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Say which memory to give, and what each budget buys, before anything runs.

    The real join runs on every n-th page of the master with a stream and memory scaled alike. Its
    counted work becomes time with this machine's unit costs, which are measured in seconds and
    kept, or given with --machine and --cost.
    """
    with messages():
        from semistream.planning.planner import plan as make_plan  # noqa: PLC0415 - it compiles

        law = _given(skew=skew, absent=absent, stream_row=stream_row)
        _check_sample(sample, on, law)
        with errors.status("simulating"):
            result = make_plan(
                master,
                memory=memory,
                rate=rate,
                sample=sample,
                on=_pairs(on),
                how=how,
                algorithm=algorithm,
                read=read,
                machine=_unit_costs(machine, cost),
                executors=executors,
                tasks=tasks,
                batch_rows=batch_rows,
                host_memory=host_memory,
                measure_again=measure_machine,
                seed=seed,
                **law,
            )
        typer.echo(json.dumps(result.as_dict(), indent=1) if as_json else str(result))


def tune(  # noqa: PLR0913, PLR0917 - one argument an option
    master: MasterPath,
    memory: Annotated[str, typer.Option(help="The budget, such as 64MB.")],
    algorithm: Annotated[str, typer.Option(help="The algorithm to tune.")] = "cachejoin",
    pages: Annotated[
        bool, typer.Option("--pages", help="Tune the page size of the master instead.")
    ] = False,
    points: Annotated[int, typer.Option(min=2, help="Values of each setting to try.")] = 8,
    skew: Skew = None,
    sample: Sample = None,
    on: On = None,
    stream_row: StreamRow = None,
    read: Read = "direct",
    machine: Costs = None,
    cost: Disk = None,
    as_json: AsJson = False,
) -> None:
    """Find the settings of an algorithm with the highest rate, by the simulation that plan uses."""
    with messages():
        from semistream.planning.planner import pose  # noqa: PLC0415 - it compiles
        from semistream.planning.tune import knobs_of, tune_pages  # noqa: PLC0415
        from semistream.planning.tune import tune as tune_knobs  # noqa: PLC0415

        law = _given(skew=skew, stream_row=stream_row)
        _check_sample(sample, on, law)
        if not pages:
            knobs_of(algorithm)
        with errors.status("simulating"):
            problem = pose(
                master,
                sample=sample,
                on=_pairs(on),
                algorithm=algorithm,
                read=read,
                machine=_unit_costs(machine, cost),
                **law,
            )
            budget = parse_bytes(memory)
            found = tune_pages(problem, budget) if pages else tune_knobs(problem, budget, points)
        if as_json:
            typer.echo(json.dumps([asdict(setting) for setting in found], indent=1))
            return
        best = found[0].point.rate
        console.print(f"{found[0]} for {algorithm} with {format_bytes(budget)}", highlight=False)
        for setting in found:
            share = setting.point.rate / best
            console.print(f"  {setting!s:<28}{share:>8.1%} of the best rate", highlight=False)


def _unit_costs(file: Path | None, pairs: Sequence[str] | None) -> Any:  # noqa: ANN401
    """Return what is given of a machine: a file, or single costs by name; None if nothing is."""
    if file is not None and pairs:
        raise OptionError("--machine and --cost both give unit costs; put all into the file")
    if file is not None or not pairs:
        return file
    costs = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            costs[name] = float(value)
        except ValueError:
            msg = f"--cost {pair}: give a unit cost as name=number, such as read=0.004"
            raise OptionError(msg) from None
    return costs


def _pairs(on: Sequence[str] | None) -> dict[str, str] | None:
    """Read ``stream=master``, or one name for both; None where nothing is given.

    Examples
    --------
    >>> _pairs(["item=id", "day"]), _pairs([])
    ({'item': 'id', 'day': 'day'}, None)
    """
    names = (name.partition("=") for name in on or ())
    return {ours: theirs or ours for ours, _, theirs in names} or None


def _given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - of any command
    """Return the options that were given; the others have their defaults elsewhere."""
    return {name: value for name, value in options.items() if value is not None}


def _check_sample(sample: str | None, on: Sequence[str] | None, law: Mapping[str, Any]) -> None:
    """Refuse options that a sample, or that there is none, would make idle.

    Examples
    --------
    >>> _check_sample("sales.csv", None, {"stream_row": 40})
    Traceback (most recent call last):
    semistream.errors.OptionError: --stream-row beside --sample: ...
    """
    if sample is None and on:
        msg = "--on names the key of a --sample; without one it is the master's: leave it out"
        raise OptionError(msg)
    if sample is not None and law:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in law)
        msg = f"{names} beside --sample: the sample tells what the stream is like; give one of them"
        raise OptionError(msg)
