"""Measuring one group of cells: every kind of experiment, in turn and after warm-up."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.harness.rounds import SETTLING, Slice, steady_seconds, watch_in_turn
from benchmarks.harness.run import Run
from benchmarks.harness.samples import rounded
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.planning.planner import JoinPredictor, Problem
from semistream.planning.tune import knobs_of, tune
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from papers.run.cells import Cell, Group
    from papers.run.scale import Scale
    from papers.run.sources import Prepared
    from semistream.master import FileMaster
    from semistream.planning.machine import Machine

    Facts = dict[str, Any]

__all__ = [
    "Bench",
    "Watched",
    "facts_of",
    "middle",
    "options_of",
    "pinned",
    "rates",
    "started",
    "watched",
]

_OPTIMUM = "optimum"  # in an experiment's file: what the model chooses
_NOT_SIMULATED = {"pcsrj"}  # several nodes
_ITERATIONS = 4_000  # of the paper's count of what pinned pages serve


@dataclass(frozen=True)
class Bench:
    """What a group is measured with."""

    data: Prepared
    machine: Machine
    scale: Scale
    known: dict[Cell, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)
    """Options that were found."""

    def master(self, cell: Cell) -> FileMaster:
        """Give the master that a cell joins with."""
        return self.data.unique if cell.series.unique else self.data.master

    def spec(self, cell: Cell) -> JoinSpec:
        """Give a cell's join."""
        return JoinSpec.resolve(
            self.master(cell), self.data.schema, self.data.on, "inner", None, ""
        )

    def problem(self, cell: Cell, **options: Any) -> Problem:
        """Return a cell's join as it is simulated."""
        data, name = self.data, cell.series.algorithm
        assert data.demand is not None  # noqa: S101 - all that are predicted are synthetic
        spec = self.spec(cell)
        master = self.master(cell)
        return Problem(spec, master, data.view, data.demand, self.machine, False, name, options)


@dataclass(frozen=True)
class Watched:
    """What a run did while it was watched."""

    slices: list[Slice]
    pinned: int
    iterations: int


def options_of(cell: Cell, bench: Bench) -> dict[str, Any]:
    """Give the options of a cell's join: those of its line, and the parts of memory it has.

    Parts that are neither given nor left to the algorithm are those that the model chooses.
    """
    if cell not in bench.known:
        bench.known[cell] = _options(cell, bench)
    return bench.known[cell]


def _options(cell: Cell, bench: Bench) -> dict[str, Any]:
    name = cell.series.algorithm
    options = {key: value for key, value in cell.series.options.items() if value != _OPTIMUM}
    options |= {key: int(value) for key, value in cell.knobs}
    by_model = cell.knobs or len(options) < len(cell.series.options)
    if not by_model or all(option in options for option in knobs_of(name)):
        return options
    best, *_ = tune(bench.problem(cell), cell.memory)
    return {**best.options, **options}


def started(cell: Cell, bench: Bench, memory: int | None = None) -> Run:
    """Begin a cell's join."""
    join = Join(
        bench.master(cell),
        bench.data.schema,
        on=bench.data.on,
        memory=memory or cell.memory,
        algorithm=cell.series.algorithm,
        **options_of(cell, bench),
    )
    return Run(join, _forever(bench.data.batches))


def _forever(batches: Sequence[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def watched(runs: Mapping[str, Run], scale: Scale) -> dict[str, Watched]:
    """Warm up, then watch all in turn."""
    for run in runs.values():
        run.warm_up(scale.pace.warm, SETTLING)
    before = {name: run.join.metrics for name, run in runs.items()}
    slices = watch_in_turn(runs, scale.pace)
    after = {name: run.join.metrics for name, run in runs.items()}
    return {
        name: Watched(
            slices[name],
            after[name].pinned_hits - before[name].pinned_hits,
            after[name].iterations - before[name].iterations,
        )
        for name in runs
    }


def facts_of(seen: Watched) -> Facts:
    """Give what a record keeps of a run: every sample, and the rate without stalls."""
    rows = sum(part.rows for part in seen.slices)
    pages = sum(part.pages for part in seen.slices)
    seconds = sum(part.seconds for part in seen.slices)
    facts = {
        "samples": [rounded(part.rows / part.seconds) for part in seen.slices],
        "seconds": round(seconds, 3),
    }
    if not rows:
        return {"refused": f"no row was answered in {seconds:.3g} s", **facts}
    return {
        "value": rounded(rows / steady_seconds(seen.slices)),
        "pages_a_row": round(pages / rows, 6),
        "hits": round(sum(part.hits for part in seen.slices) / rows, 4),
        **facts,
    }


def _plan(run: Run) -> Facts:
    """Tell a join that simply holds the whole master, whatever its name."""
    return {"resident": True} if run.join.plan.settings.resident else {}


def rates(group: Group, bench: Bench) -> Iterator[tuple[Cell, Facts]]:
    """Measure the rate of every cell, in turn; beside it what the model predicts."""
    runs, refused = _begun(group.cells, bench)
    names = {str(number): cell for number, cell in enumerate(runs)}
    seen = watched({name: runs[cell] for name, cell in names.items()}, bench.scale)
    for name, cell in names.items():
        beside = _plan(runs[cell]) | _predicted(cell, bench)
        runs[cell].join.close()
        yield cell, facts_of(seen[name]) | beside | {"memory": cell.memory}
    yield from refused


def pinned(group: Group, bench: Bench) -> Iterator[tuple[Cell, Facts]]:
    """Measure how many rows pinned pages answer in 4,000 iterations."""
    runs, refused = _begun(group.cells, bench)
    for cell, run in runs.items():
        seen = watched({"": run}, bench.scale)[""]
        run.join.close()
        facts: Facts = {"refused": "no page was brought while it was watched"}
        if seen.iterations:
            facts = {"value": rounded(_ITERATIONS * seen.pinned / seen.iterations)}
        counts = {"iterations": seen.iterations, "pinned": seen.pinned}
        yield cell, facts | counts | {"rate": facts_of(seen), "memory": cell.memory}
    yield from refused


def _begun(cells: Sequence[Cell], bench: Bench) -> tuple[dict[Cell, Run], list[tuple[Cell, Facts]]]:
    """Begin the joins; a budget that is too small is told, and the others go on."""
    runs: dict[Cell, Run] = {}
    refused: list[tuple[Cell, Facts]] = []
    for cell in cells:
        try:
            runs[cell] = started(cell, bench)
        except BudgetError as error:
            refused.append((cell, {"refused": str(error).split(";")[0]}))
    return runs, refused


def _predicted(cell: Cell, bench: Bench) -> Facts:
    """Predict the rate of a join that has settled, by simulation."""
    data = bench.data
    if data.demand is None or cell.series.unique or cell.series.algorithm in _NOT_SIMULATED:
        return {}
    options = options_of(cell, bench)
    predictor = JoinPredictor(bench.problem(cell, **options), data.batches[0].num_rows)
    shown = {name: options[name] for name in ("k", "l", "buffer") if name in options}
    rate = predictor.predict(cell.memory).rate
    return {"predicted": rounded(rate)} | ({"options": shown} if shown else {})


def middle(samples: Sequence[float]) -> float:
    """Give the median."""
    return float(statistics.median(samples))
