"""Measuring tuning: the model's choice of every knob against the best that is measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.bench.matrix import one_thread
from semistream.bench.run import rounded
from semistream.bench.workload import Feed, Workload
from semistream.cost.calibration.reads import reads_of
from semistream.cost.demand import Demand
from semistream.cost.predict import predict
from semistream.cost.tuning.knobs import PAGE_BYTES, knobs_of, repaged
from semistream.cost.tuning.measure import Candidate, Curve, Sampling, distinct, measured
from semistream.cost.tuning.tune import tuned, tuned_pages
from semistream.errors import BudgetError
from semistream.machine import describe
from semistream.master import open_master
from semistream.plan import Task
from semistream.spec import JoinSpec
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from semistream.cost.profile import Profile
    from semistream.cost.tuning.tune import Options, Tuned
    from semistream.cost.unit_costs import Curve as ReadCurve
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import Master

    Record = dict[str, Any]
    Say = Callable[[str], None]

__all__ = ["Case", "TuningGrid", "begin", "candidates", "measure_tuning", "tuned_cell"]


_SAMPLING = Sampling()


@dataclass(frozen=True)
class TuningGrid:
    """What is tuned, by the model and by measurement."""

    algorithms: tuple[str, ...] = (
        "meshjoin",
        "cachejoin",
        "tuned-x-hybridjoin",
        "optimised-x-hybridjoin",
    )
    """Of these the knobs are tuned."""
    paged: tuple[str, ...] = ("hybridjoin", "adaptive")
    """Of these the page size of the store is."""
    rows: int = 2_000_000
    shares: tuple[float, ...] = (0.01, 0.05, 0.10, 0.20)
    exponents: tuple[float, ...] = (0.5, 1.0)
    read: str = "direct"
    page_bytes: int = 128 << 10
    page_sizes: tuple[int, ...] = (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)
    """Masters are built with each of them."""
    points: int = 5
    """Values of a knob that are measured, beside the model's and the algorithm's own; of several
    knobs, fewer of each."""
    sampling: Sampling = _SAMPLING
    read_seconds: float = 0.8
    """How long reads are measured before each setting, as the planner does."""

    def quick(self) -> TuningGrid:
        """Give a few cells of a small master, with pages small enough for it."""
        small, sampling = 1 << 14, Sampling(0.05, 0.4, self.sampling.rounds, 3)
        return replace(
            self,
            rows=min(self.rows, 200_000),
            shares=(0.10,),
            exponents=(1.0,),
            page_bytes=small,
            page_sizes=(small // 2, small, 2 * small),
            points=3,
            sampling=sampling,
            read_seconds=0.1,
        )

    @property
    def cells(self) -> int:
        """How many curves there are."""
        each = len(self.algorithms) + len(self.paged)
        return each * len(self.shares) * len(self.exponents)

    @property
    def written_bytes(self) -> int:
        """About what the masters take on disk."""
        sizes = {self.page_bytes, *(self.page_sizes if self.paged else ())}
        return int(1.05 * len(sizes) * Workload("1:1", self.rows).bytes)


class Case(NamedTuple):
    """A setting in which knobs are tuned."""

    masters: Mapping[int, Master]
    """By page size; the first is that of whose splits are tuned."""
    memory: int
    demand: Demand
    batches: Sequence[pa.RecordBatch]
    """The stream; none where nothing is measured."""
    schema: pa.Schema
    costs: UnitCosts
    """What is known of this machine, and of reads of this master."""
    small_reads: Mapping[str, ReadCurve]
    """What reads cost from the smallest pages on, for page sizes."""

    @property
    def master(self) -> Master:
        """The master whose splits are tuned."""
        return next(iter(self.masters.values()))

    @property
    def spec(self) -> JoinSpec:
        """The join."""
        return JoinSpec.resolve(self.master, self.schema, list(self.master.key), "inner", None, "")


def begin(grid: Record, profile: Profile) -> Record:
    """Make a record without cells."""
    return {
        "kind": "tuning",
        "what": "knobs tuned by the model and by measurement, stream rows a second, one thread",
        "machine": describe(),
        "grid": grid,
        "profile": {"machine": dict(profile.machine), "costs": profile.costs.as_dict()},
        "cells": [],
    }


def measure_tuning(grid: TuningGrid, folder: Path, profile: Profile, say: Say) -> Iterator[Record]:
    """Give the record after every curve, each time with one cell more."""
    one_thread()
    record = begin(asdict(grid), profile)
    workload = Workload("1:1", grid.rows)
    masters = {}
    for size in dict.fromkeys((grid.page_bytes, *(grid.page_sizes if grid.paged else ()))):
        say(f"the master with pages of {format_bytes(size)}")
        path = workload.prepare(folder, format_bytes(size).replace(" ", ""))
        masters[size] = open_master(path, grid.read)
    for exponent in grid.exponents:
        feed = Feed.of(workload.stream(exponent), max(1_000_000, grid.rows))
        for share in grid.shares:
            say(f"reads, before {share:.0%}, Zipf {exponent:g}")
            case = _case(grid, masters, feed, (int(share * workload.bytes), exponent), profile)
            for name in (*grid.algorithms, *grid.paged):
                say(f"{name}, {share:.0%}, Zipf {exponent:g}")
                cell = tuned_cell(name, case, grid, say)
                record["cells"].append({"share": share, "exponent": exponent, **cell})
                yield record


def _case(
    grid: TuningGrid,
    masters: Mapping[int, Master],
    feed: Feed,
    setting: tuple[int, float],
    profile: Profile,
) -> Case:
    memory, exponent = setting
    master = masters[grid.page_bytes]
    return Case(
        masters,
        memory,
        Demand.zipf(master.statistics.values, exponent, master.pages),
        feed.batches,
        feed.schema,
        profile.costs.with_reads(reads_of(master, grid.read_seconds)),
        reads_of(masters[min(masters)], grid.read_seconds) if grid.paged else {},
    )


def tuned_cell(name: str, case: Case, grid: TuningGrid, say: Say) -> Record:
    """Tune one algorithm in one setting, by the model and, if there is a stream, by measurement."""
    paged = name in grid.paged
    costs = case.costs.with_reads(case.small_reads) if paged else case.costs
    facts = {"algorithm": name, "memory": case.memory, "master_bytes": case.master.statistics.bytes}
    by = tuned_pages if paged else tuned
    try:
        model = by(name, case.spec, case.memory, case.demand, costs)
    except BudgetError as error:
        return {**facts, "refused": str(error)}
    if model.prediction.plan.settings.get("resident"):
        whole = f"all of the master fits into {format_bytes(case.memory)}: nothing is left to tune"
        return {**facts, "refused": whole}
    cell = {**facts, "knobs": list(model.options), "model": _model(model)}
    cell["c_io"] = costs.as_dict()["c_io"]
    if not case.batches:
        return cell
    tried = distinct(name, case.memory, candidates(model, case, grid.points), case.schema)
    rates = [_expected(name, case, costs, candidate) for candidate in tried]
    chosen = rates.index(max(rates))
    curve = measured(name, case.memory, tried, chosen, case.batches, grid.sampling, say)
    untuned = [candidate.untuned for candidate in tried].index(True)
    return cell | {"measured": _measured(curve, rates, untuned)}


def _model(model: Tuned) -> Record:
    return {
        "choice": dict(model.options),
        "rate": rounded(model.best.rate),
        "untuned": rounded(model.untuned.rate),
        "plan": dict(model.prediction.plan.components),
        "curves": {
            option: [[p.options[option], rounded(p.rate)] for p in model.along(option)]
            for option in model.options
        },
    }


def candidates(model: Tuned, case: Case, points: int) -> list[Candidate]:
    """Choose what is measured: values over the whole of each knob, the model's, and no options.

    Several knobs are measured along the lines through the model's choice. Of page sizes there are
    those that masters were built with.
    """
    if PAGE_BYTES in model.options:
        return [
            Candidate({PAGE_BYTES: size}, master, {}, untuned=not number)
            for number, (size, master) in enumerate(case.masters.items())
        ]
    task = Task.of(case.spec, case.memory, None)
    found: list[Options] = [model.options]
    knobs = knobs_of(model.algorithm)
    points = points if len(knobs) == 1 else max(3, points - 1)
    for knob in knobs:
        axis = knob.axis(task)
        values = [point.options[knob.option] for point in model.along(knob.option)]
        wanted = (*axis.grid(points, values[0], values[-1]), *axis.also)
        found += [{**model.options, knob.option: value} for value in wanted]
    plain = [Candidate(dict(options), case.master, dict(options)) for options in found]
    return [*plain, Candidate({}, case.master, {}, untuned=True)]


def _expected(name: str, case: Case, costs: UnitCosts, candidate: Candidate) -> float:
    """Give the rate that the model predicts for a candidate."""
    spec = replace(case.spec, master=candidate.master)
    demand = case.demand
    if candidate.master.pages != demand.pages:
        demand = repaged(demand, candidate.master.pages)
    return predict(name, spec, case.memory, demand, costs, options=candidate.given).rate


def _measured(curve: Curve, rates: Sequence[float], untuned: int) -> Record:
    points = [
        {"options": dict(options), "predicted": rounded(rate), "samples": samples}
        for options, rate, samples in zip(curve.options, rates, curve.samples, strict=True)
    ]
    return {
        "points": points,
        "optimum": curve.best,
        "chosen": curve.chosen,
        "untuned": untuned,
        "final": list(curve.final),
        "loss": [round(value, 4) for value in curve.loss],
    }
