"""What all commands share: consoles, error messages, progress bars, tables."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from semistream.errors import OptionError, SemistreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semistream.master import Progress as BuildProgress

__all__ = [
    "BUDGETS",
    "DATA",
    "PIPELINES",
    "AsJson",
    "build_bar",
    "complain",
    "console",
    "errors",
    "messages",
    "needed",
    "progress_bar",
    "show",
]

PIPELINES, DATA, BUDGETS = "Pipelines", "Master tables and test data", "Budgets and algorithms"
"""The groups in which ``semistream --help`` lists its commands."""

console = Console()
errors = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@contextmanager
def messages() -> Iterator[None]:
    """Turn our errors, and those of files, into a message and exit code 1."""
    try:
        yield
    except (SemistreamError, OSError) as error:
        complain(error)
        raise typer.Exit(1) from None


@contextmanager
def needed(what: str, **extras: str) -> Iterator[None]:
    """Raise an error that names the extra which brings a missing package.

    ``needed("a figure", matplotlib="figures")`` is for what a figure may need.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = extras.get(error.name or "")
        if extra is None:
            raise
        msg = f"{what} needs {error.name}: pip install 'semistream[{extra}]'"
        raise OptionError(msg) from None


def complain(error: Exception) -> None:
    """Print the message of an error."""
    errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)


def show(as_json: bool, facts: object, text: str, indent: int | None = 2) -> None:
    """Print facts as JSON, or else a text that says the same."""
    if as_json:
        typer.echo(json.dumps(facts, indent=indent))
    else:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def progress_bar() -> Progress:
    """Return a bar with the steps done, the time taken, and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    times = (
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    return Progress(*columns, *times, console=errors, transient=True, speed_estimate_period=600)


@contextmanager
def build_bar() -> Iterator[Callable[[BuildProgress], None]]:
    """Show how far the build of a master is."""
    with progress_bar() as bar:
        task = bar.add_task("read", total=None)
        yield lambda p: bar.update(task, description=p.phase, completed=p.rows, total=p.total)
