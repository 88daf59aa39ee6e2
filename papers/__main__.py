"""The command ``python -m papers``, from the root of a clone: the papers' experiments, run here."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from papers.run.scale import scale_of
from semistream.cli.terminal import console, errors, messages, needed, progress_bar
from semistream.planning.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from papers.experiment import Experiment
    from papers.run.scale import Scale

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything, scaled down to a few minutes.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="R of 20M to 100M rows, as in the papers; 12 GB on disk.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(help="Only this experiment, such as moij/figure-7a, or paper, such as moij."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Where data, raw runs, figures and the report go.")
    ] = Path("reproduced"),
    machine: Annotated[
        Path | None,
        typer.Option(help="Unit costs, JSON or TOML; those of this machine if not given."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Measure nothing; report on the runs in OUTPUT.")
    ] = False,
) -> None:
    """Run the experiments of the five papers, draw them, and judge the papers' claims.

    Every run is kept in OUTPUT/runs as JSON, and nothing is measured twice: an interrupted run
    continues where it stopped. The report is OUTPUT/report.html.
    """
    with messages(), needed("reproduce", yaml="pipeline", pyspark="spark", pandas="spark"):
        from papers.reading import experiments
        from papers.report import write_report

        chosen, scale = experiments(only), scale_of(quick, full)
        if not report_only:
            _measure(chosen, scale, output, Machine.load(machine) if machine else None)
        counts = write_report(output)
        for word, count in counts.items():
            console.print(f"{word}: {count}", highlight=False)
        console.print(f"the report: {output / 'report.html'}", highlight=False, soft_wrap=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the measuring, not the report on what was measured."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("interrupted; the same command goes on from here", highlight=False)


def _measure(
    chosen: dict[str, Experiment], scale: Scale, output: Path, machine: Machine | None
) -> None:
    from papers.run.runner import measured, steps

    with progress_bar() as bar, _interruptible():
        task = bar.add_task("", total=sum(steps(one, scale) for one in chosen.values()))
        for name, experiment in chosen.items():
            for _ in measured(
                name,
                experiment,
                scale,
                output,
                machine,
                lambda what: bar.update(task, description=what),
            ):
                bar.advance(task)


if __name__ == "__main__":
    app(prog_name="python -m papers")
