"""The command line: one way to declare a benchmark, to run it, and to show its record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar, get_args, get_type_hints

import typer

from benchmarks.harness.figure import draw_into
from benchmarks.harness.machine import describe
from benchmarks.harness.record import Record, add, compact, read_record, resumed, write_record
from benchmarks.harness.servers import running
from benchmarks.harness.table import Sheet, between_marks, markdown, terminal_table
from semistream.cli.terminal import AsJson, console, errors, messages, progress_bar
from semistream.errors import OptionError

G = TypeVar("G", bound="Grid")
Draw = Callable[[Record, Any], None]


def option(
    default: Any,
    text: str,
    name: str = "",
    *,
    known: Iterable[str] = (),
    read: Callable[[str], Any] | None = None,
) -> Any:
    """Declare a field of a grid that is an option of its command.

    Parameters
    ----------
    text
        The help; a tuple's option may be repeated.
    name
        Of the option, where it is not that of the field.
    known
        The legal values, where these are few.
    read
        Makes a value of what the user writes.
    """
    about = {"help": text, "name": name, "known": tuple(known), "read": read}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Grid:
    """What a benchmark measures; it becomes a part of the record."""

    def quick(self) -> Self:
        """Return a small version, to try it: its figures mean little."""
        return self

    def complete(self) -> Self:
        """Return the grid with what follows from the options that were given."""
        return self

    @property
    def steps(self) -> int | None:
        """How many steps there are, if that is known: one each time that `measure` yields."""
        return None


@dataclass
class Job(Generic[G]):
    """A benchmark under way."""

    grid: G
    folder: Path
    """Where masters and streams are kept between runs."""
    record: Record
    say: Callable[[str], None] = lambda _: None
    """Progress callback: what is being done."""
    urls: tuple[str, ...] = ()
    """Databases, which are never written to a record."""

    def has(self, part: str, setting: Record, names: Iterable[str] = ()) -> bool:
        """Check whether a resumed record has an entry of this setting, with all these rates."""
        return any(
            setting.items() <= entry.items()
            and set(names) <= {*entry.get("rates", ()), *entry.get("refused", ())}
            for entry in self.record.get(part, [])
        )

    def add(self, part: str, entry: Record, *identity: str) -> None:
        """Append an entry to a list of the record, or replace the one of the same identity."""
        add(self.record, part, entry, identity)


@dataclass(frozen=True)
class Benchmark(Generic[G]):
    """A benchmark: its name is that of its command and the kind of its records.

    Parameters
    ----------
    measure
        Adds to the record of a job, and yields after each step: the record is written then.
    sheets
        The tables of a record.
    figures
        By file name: whether a record has what a figure needs, and what draws it.
    servers
        Databases that are started where no address is given.
    """

    name: str
    what: str
    grid: type[G]
    measure: Callable[[Job[G]], Iterator[None]]
    sheets: Callable[[Record], Iterable[Sheet]]
    figures: Mapping[str, tuple[Callable[[Record], object], Draw]] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    resume: Callable[[Record, Record, Path], Record] = resumed

    def begin(self, grid: G) -> Record:
        """Return a record without results."""
        about = {"kind": self.name, "what": self.what, "machine": describe()}
        return about | {"grid": asdict(grid)}

    def run(self, job: Job[G], output: Path | None = None) -> Record:
        """Measure; write the record after every step."""
        with progress_bar() as bar:
            task = bar.add_task("", total=job.grid.steps)

            def say(what: str) -> None:
                bar.update(task, description=what)
                if not errors.is_terminal:  # no bar is drawn
                    errors.print(what, highlight=False)

            job.say = say
            for _ in self.measure(job):
                bar.advance(task)
                if output is not None:
                    write_record(job.record, output)
        return job.record

    def draw(self, record: Record, folder: Path) -> None:
        """Draw the figures for which the record has what they need."""
        for name, (suffices, draw) in self.figures.items():
            if suffices(record):
                draw_into(folder / f"{name}.svg", partial(draw, record))


def command_line(benchmarks: Iterable[Benchmark[Any]]) -> typer.Typer:
    """Make a command of each benchmark, and one that shows records."""
    app = typer.Typer(
        help="Measure semistream, and what one would take instead; show records of it.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    known = {benchmark.name: benchmark for benchmark in benchmarks}
    for name, benchmark in known.items():
        app.command(name)(_command(benchmark))

    @app.command()
    def show(
        record: Annotated[list[Path], typer.Argument(help="Records of earlier benchmarks.")],
        into: Annotated[
            Path | None,
            typer.Option(
                "--markdown", help="Put the tables into this file, between <!-- KIND --> marks."
            ),
        ] = None,
        figures: Annotated[Path | None, typer.Option(help="Draw figures into this folder.")] = None,
    ) -> None:
        """Show records as tables, or put them into a Markdown file."""
        with messages():
            for path in record:
                content = read_record(path)
                if content["kind"] not in known:
                    raise OptionError.unknown("kind of record", content["kind"], known)
                benchmark = known[content["kind"]]
                if figures is not None:
                    benchmark.draw(content, figures)
                if into is None:
                    _print(benchmark, content)
                else:
                    tables = markdown(benchmark.sheets(content))
                    into.write_text(between_marks(into.read_text(), benchmark.name, tables))

    return app


def _print(benchmark: Benchmark[Any], record: Record) -> None:
    for sheet in benchmark.sheets(record):
        console.print(terminal_table(sheet))


_SHARED: dict[str, tuple[Any, Any]] = {
    "output": (Annotated[Path | None, typer.Option(help="Write the record here, as JSON.")], None),
    "resume": (
        Annotated[bool, typer.Option("--resume", help="Keep what --output has; measure the rest.")],
        False,
    ),
    "quick": (Annotated[bool, typer.Option("--quick", help="A small version, to try it.")], False),
    "data": (
        Annotated[Path, typer.Option(help="Where masters and streams are kept between runs.")],
        Path(".bench"),
    ),
    "as_json": (AsJson, False),
}
_FIGURES = Annotated[Path | None, typer.Option(help="Draw figures into this folder.")]
_URL = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        envvar="SEMISTREAM_BENCH_URLS",
        help="A database, postgresql://… or mysql://…; without one, servers are started.",
    ),
]


def _command(benchmark: Benchmark[G]) -> Callable[..., None]:
    """Make the command: the fields of the grid that are options, and those that all share."""

    def command(**given: Any) -> None:
        with messages(), ExitStack() as stack:
            grid = benchmark.grid().quick() if given["quick"] else benchmark.grid()
            grid = replace(grid, **_values(benchmark.grid, given)).complete()
            record, output = benchmark.begin(grid), given["output"]
            if given["resume"] and output is not None and output.exists():
                record = benchmark.resume(read_record(output), record, output)
            urls = given.get("url") or stack.enter_context(running(benchmark.servers))
            job = Job(grid, given["data"].absolute(), record, urls=tuple(urls))
            benchmark.run(job, output)
            if given.get("figures"):
                benchmark.draw(job.record, given["figures"])
            if given["as_json"]:
                typer.echo(compact(job.record))
            else:
                _print(benchmark, job.record)

    shared = dict(_SHARED)
    if benchmark.figures:
        shared["figures"] = (_FIGURES, None)
    if benchmark.servers:
        shared["url"] = (_URL, None)
    parameters = {**dict(_options(benchmark.grid)), **shared}
    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, default=default, annotation=hint)
            for name, (hint, default) in parameters.items()
        ]
    )
    command.__annotations__ = {name: hint for name, (hint, _) in parameters.items()}
    command.__doc__ = inspect.cleandoc(benchmark.measure.__doc__ or "")
    return command


def _options(grid: type[Grid]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Return the options of a grid: their types for the command line, and None, as not given."""
    hints = get_type_hints(grid)
    for each in fields(grid):
        about, hint = each.metadata, hints[each.name]
        if about:
            several = isinstance(each.default, tuple)
            plain = str if about["read"] else get_args(hint)[0] if several else hint
            text = about["help"]
            if about["known"]:
                text += f" One of {', '.join(about['known'])}."
            text += " Repeat for several." if several else f" [default: {each.default}]"
            kind = list[plain] if several else plain  # type: ignore[valid-type]
            named = typer.Option(f"--{(about['name'] or each.name).replace('_', '-')}", help=text)
            yield each.name, (Annotated[kind | None, named], None)


def _values(grid: type[Grid], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options that were given; raise for one that is not known."""
    values = {}
    for each in fields(grid):
        value = given.get(each.name)
        if value is None or not each.metadata:
            continue
        known, read = each.metadata["known"], each.metadata["read"] or (lambda same: same)
        for one in value if isinstance(value, list) else [value]:
            if known and one not in known:
                raise OptionError.unknown(each.metadata["name"] or each.name, one, known)
        values[each.name] = tuple(map(read, value)) if isinstance(value, list) else read(value)
    return values
