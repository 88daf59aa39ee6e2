"""The commands, called as from a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from benchmarks.__main__ import BENCHMARKS
from benchmarks.__main__ import app as benchmarks
from semistream.cli.commands import app

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.testing import Result

    from benchmarks.harness.record import Record
    from benchmarks.harness.table import Sheet


def call(*arguments: object) -> Result:
    """Run ``semistream`` with these arguments."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def bench(*arguments: object) -> Result:
    """Run ``python -m benchmarks`` with these arguments."""
    return CliRunner().invoke(benchmarks, [str(argument) for argument in arguments])


def sheets(record: Record) -> Iterable[Sheet]:
    """Return the tables of a benchmark's record, by its kind."""
    return {benchmark.name: benchmark for benchmark in BENCHMARKS}[record["kind"]].sheets(record)
