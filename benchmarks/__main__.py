"""The command ``python -m benchmarks``, from the root of a clone."""

from __future__ import annotations

import typer

from benchmarks import commands
from benchmarks.spark.live import command as live_command
from benchmarks.spark.peers import command as peers_command

__all__ = ["app"]

app = typer.Typer(
    help="Measure semistream, and what one would take instead; show records of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for each in (commands, live_command, peers_command):
    each.add_to(app)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
