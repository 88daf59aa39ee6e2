"""One algorithm in one setting, tuned by the model and by measurement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.cost.models import SETTLED
from semistream.cost.predict import predict
from semistream.cost.run import rounded
from semistream.cost.tuning.knobs import PAGE_BYTES, knobs_of, repaged
from semistream.cost.tuning.measure import Candidate, distinct, measured
from semistream.cost.tuning.tune import tuned, tuned_pages
from semistream.engine.plan import Task
from semistream.errors import BudgetError
from semistream.spec import JoinSpec
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from semistream.cost.demand import Demand
    from semistream.cost.tuning.knobs import Axis, Value
    from semistream.cost.tuning.measure import Curve, Sampling
    from semistream.cost.tuning.record import TuningGrid
    from semistream.cost.tuning.tune import Options, Tuned
    from semistream.cost.unit_costs import Curve as ReadCurve
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import FileMaster

    Record = dict[str, Any]
    Say = Callable[[str], None]

__all__ = ["Case", "candidates", "tuned_cell"]


class Case(NamedTuple):
    """A setting in which knobs are tuned."""

    masters: Mapping[int, FileMaster]
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
    age: float = SETTLED
    """Predictions are for joins that have had so many stream rows."""

    @property
    def master(self) -> FileMaster:
        """The master whose splits are tuned."""
        return next(iter(self.masters.values()))

    @property
    def spec(self) -> JoinSpec:
        """The join."""
        return JoinSpec.resolve(self.master, self.schema, list(self.master.key), "inner", None, "")

    @property
    def batch(self) -> int:
        """Stream rows that are offered at once, 0 where nothing is measured."""
        return self.batches[0].num_rows if self.batches else 0


def tuned_cell(name: str, case: Case, grid: TuningGrid, say: Say) -> Record:
    """Tune one algorithm in one setting, by the model and, if there is a stream, by measurement.

    Where it is measured, the model predicts for joins as young as those that are.
    """
    paged = name in grid.paged
    costs = case.costs.with_reads(case.small_reads) if paged else case.costs
    facts = {"algorithm": name, "memory": case.memory, "master_bytes": case.master.statistics.bytes}
    by = tuned_pages if paged else tuned
    try:
        case = _as_watched(name, case, costs, grid.sampling)
        model = by(name, case.spec, case.memory, case.demand, costs, age=case.age, batch=case.batch)
    except BudgetError as error:
        return {**facts, "refused": str(error)}
    if model.prediction.plan.settings.get("resident"):
        whole = f"all of the master fits into {format_bytes(case.memory)}"
        return {**facts, "refused": f"{whole}: nothing is left to tune"}
    cell = {**facts, "knobs": list(model.options), "model": _model(model)}
    cell["c_io"] = costs.as_dict()["c_io"]
    if not case.batches:
        return cell
    cell |= {"age": rounded(case.age), "batch": case.batch}
    tried = distinct(name, case.memory, candidates(model, case, grid.points), case.schema)
    rates = [_expected(name, case, costs, candidate) for candidate in tried]
    chosen = rates.index(max(rates))
    curve = measured(name, case.memory, tried, chosen, case.batches, grid.sampling, say)
    untuned = [candidate.untuned for candidate in tried].index(True)
    return cell | {"measured": _measured(curve, rates, untuned)}


def _as_watched(name: str, case: Case, costs: UnitCosts, sampling: Sampling) -> Case:
    """Give the case with the age that joins will have when they are measured, if they are."""
    if not case.batches:
        return case
    rate = predict(name, case.spec, case.memory, case.demand, costs).rate
    return case._replace(age=sampling.age(rate))


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
        apart = [value for value in wanted if _apart(axis, value, model.options[knob.option])]
        found += [{**model.options, knob.option: value} for value in apart]
    plain = [Candidate(dict(options), case.master, dict(options)) for options in found]
    return [*plain, Candidate({}, case.master, {}, untuned=True)]


def _apart(axis: Axis, value: Value, choice: Value) -> bool:
    """Tell whether a value differs from the model's by more than a sample could show."""
    return abs(value - choice) > 0.03 if not axis.unit else abs(value - choice) > 0.1 * choice


def _expected(name: str, case: Case, costs: UnitCosts, candidate: Candidate) -> float:
    """Give the rate that the model predicts for a candidate."""
    spec, given = replace(case.spec, master=candidate.master), candidate.given
    demand = case.demand
    if candidate.master.pages != demand.pages:
        demand = repaged(demand, candidate.master.pages)
    found = predict(
        name, spec, case.memory, demand, costs, options=given, age=case.age, batch=case.batch
    )
    return found.rate


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
