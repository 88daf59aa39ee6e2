"""The command that measures enrichment beside what a user would take instead."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.extras import spark_needed
from benchmarks.spark.peers.figure import PEERS_FIGURES
from benchmarks.spark.peers.grid import PARTS, PeersGrid
from benchmarks.store import read_record, write_record
from benchmarks.tables import sheets
from semistream.cli.terminal import AsJson, console, errors, messages, progress_bar, terminal_table
from semistream.cost.tuning.figure import draw_into
from semistream.cost.tuning.record import compact
from semistream.errors import OptionError

__all__ = ["add_to"]

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="SEMISTREAM_BENCH_URL",
        help="A PostgreSQL database, postgresql://…; tables are created in it.",
    ),
]
Parts = Annotated[
    list[str] | None,
    typer.Option("--part", help=f"Only this part, of {', '.join(PARTS)}; repeat for several."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("peers")(bench_peers)


def bench_peers(  # noqa: PLR0913, PLR0917 - one argument an option
    url: Url = "",
    output: Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Draw figures into this folder.")] = None,
    part: Parts = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Rows of a master; repeat for several.")
    ] = None,
    system: Annotated[
        list[str] | None, typer.Option(help="Only this system; repeat for several.")
    ] = None,
    how: Annotated[list[str] | None, typer.Option(help="left or inner; repeat for both.")] = None,
    rounds: Annotated[int | None, typer.Option(help="The number of samples.")] = None,
    full: Annotated[bool, typer.Option(help="Also a master of 50M rows (24 GB on disk).")] = False,
    quick: Annotated[bool, typer.Option(help="A small master and few batches.")] = False,
    data: Annotated[Path, typer.Option(help="Where masters and streams are kept.")] = Path(
        ".bench"
    ),
    as_json: AsJson = False,
) -> None:
    """Measure enrichment beside Spark's joins, stores in workers, key lists and Flink.

    All join the same products and sales on two cores, without a sink. The rows of every system are
    compared with those of Spark's join before it is timed, and systems take turns in random order.
    What cannot be installed is named and left out. With --part, --rows or --how the rest of the
    output stays as it is.
    """
    with messages(), spark_needed():
        parts = _known("part", part or PARTS, PARTS)
        grid = _grid(full, quick, rows, system, how, rounds)
        earlier = _earlier(output, bool(part or rows or how), system)
        record = _measured(grid, parts, earlier, (data, url, output))
        if figures is not None:
            _draw(record, figures)
        if as_json:
            typer.echo(compact(record))
            return
        for sheet in sheets(record):
            console.print(terminal_table(sheet))


def _earlier(output: Path | None, again: bool, systems: list[str] | None) -> dict[str, Any]:
    """Give the record that is measured again in part."""
    if output is None or not output.exists():
        return {}
    if systems:
        msg = (
            f"{output} has samples of other systems, taken in turn with those of --system; give "
            "another --output, or leave --system out"
        )
        raise OptionError(msg)
    return read_record(output) if again else {}


def _grid(
    full: bool,
    quick: bool,
    rows: list[int] | None,
    systems: list[str] | None,
    hows: list[str] | None,
    rounds: int | None,
) -> PeersGrid:
    grid = PeersGrid().quick() if quick else PeersGrid()
    grid = grid.full() if full else grid
    names = systems and _known("system", systems, PeersGrid.systems)
    given: dict[str, Any] = {
        "rows": rows and tuple(rows),
        "systems": names,
        "hows": hows and _known("how", hows, PeersGrid.hows),
        "published": False if systems or rows else None,
        "rounds": rounds,
    }
    return replace(grid, **{name: value for name, value in given.items() if value is not None})


def _measured(
    grid: PeersGrid,
    parts: tuple[str, ...],
    earlier: dict[str, Any],
    places: tuple[Path, str, Path | None],
) -> dict[str, Any]:
    """Measure; the record is written after every step."""
    from benchmarks.spark.peers.measure import PeersBench, steps  # noqa: PLC0415 - an extra

    (data, url, output), record = places, earlier
    with progress_bar() as bar:
        task = bar.add_task("", total=steps(grid, parts))

        def say(what: str) -> None:
            bar.update(task, description=what)
            if not errors.is_terminal:  # where a bar is not drawn
                errors.print(what, highlight=False)

        for record in PeersBench(grid, data.absolute(), url, say).run(parts, earlier):
            bar.advance(task)
            if output is not None:
                write_record(record, output)
    return record


def _known(
    what: str, names: list[str] | tuple[str, ...], known: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            raise OptionError.unknown(what, name, known)
    return tuple(name for name in known if name in names)


def _draw(record: dict[str, Any], folder: Path) -> None:
    for name, (part, draw) in PEERS_FIGURES.items():
        if record.get(part):
            draw_into(folder / f"{name}.svg", partial(draw, record))
