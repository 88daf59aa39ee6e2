"""Measuring how well the cost models predict: every algorithm, predicted and measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.engine.model_tables import contenders
from benchmarks.workload import BATCH_ROWS, Feed, Workload
from semistream.algorithms import choose
from semistream.cost.calibration.standards import Standards
from semistream.cost.calibration.turns import (
    SETTLING,
    Pace,
    Slice,
    steady_seconds,
    watch_in_turn,
)
from semistream.cost.demand import Demand
from semistream.cost.models import SETTLED, Setting
from semistream.cost.predict import Prediction, predicted
from semistream.cost.profile import FORMAT
from semistream.cost.run import Run, one_thread, rounded
from semistream.cost.unit_costs import Fit
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.master import open_master
from semistream.spec import JoinSpec
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from semistream.cost.profile import Profile
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import FileMaster

    Record = dict[str, Any]

__all__ = ["ModelGrid", "measure_model", "predicted_again", "run_offs"]


_PACE = Pace(seconds=0.15, rounds=20, warm=1.5)
_SETTLING = 1.6e6  # rows of R whose caches settle in a second
_RUN_OFF = 3  # times as many slices as before
_FEED = 8_000_000  # stream rows at least: a cache soon knows a stream that comes again


@dataclass(frozen=True)
class ModelGrid:
    """What is predicted and measured."""

    algorithms: tuple[str, ...]
    rows: tuple[int, ...] = (500_000, 2_000_000, 8_000_000)
    shares: tuple[float, ...] = (0.01, 0.05, 0.10, 0.20)
    exponents: tuple[float, ...] = (0.0, 0.5, 1.0)
    read: str = "direct"
    pace: Pace = _PACE
    page_bytes: str = "128KB"

    @property
    def cells(self) -> int:
        """How many settings there are."""
        return len(self.rows) * len(self.shares) * len(self.exponents)


def measure_model(
    grid: ModelGrid,
    folder: Path,
    profile: Profile,
    say: Callable[[str], None],
    before: Record | None = None,
) -> Iterator[Record]:
    """Give the record after every setting, each time with one cell more; go on with one before.

    A prediction is made of the profile, of what standards took that were timed in turn with the
    algorithms, and of how many rows a join had had; how long it took has no part in it.
    """
    one_thread()
    record: Record = before or {
        "kind": "model",
        "what": "stream rows a second, predicted and measured, one thread",
        "machine": describe(),
        "grid": asdict(grid),
        "profile": {
            "format": FORMAT,
            "machine": dict(profile.machine),
            "costs": profile.costs.as_dict(),
        },
        "cells": [],
    }
    for rows in grid.rows:
        say(f"R = {rows:,}: the master")
        workload = Workload("1:1", rows)
        master = open_master(workload.prepare(folder, grid.page_bytes), grid.read)
        for exponent in grid.exponents:
            shares = [share for share in grid.shares if not _is_in(record, rows, share, exponent)]
            feed = Feed.of(workload.stream(exponent), max(_FEED, 2 * rows) if shares else 0)
            for share in shares:
                say(f"R = {rows:,}, {share:.0%}, Zipf {exponent:g}")
                found = _cell(grid, master, feed, (int(share * workload.bytes), exponent), profile)
                cell = {"rows": rows, "share": share, "exponent": exponent}
                record["cells"].append(cell | found)
                yield record


def _is_in(record: Record, *setting: float) -> bool:
    keys = ("rows", "share", "exponent")
    return any(tuple(cell[key] for key in keys) == setting for cell in record["cells"])


def _cell(
    grid: ModelGrid, master: FileMaster, feed: Feed, setting: tuple[int, float], profile: Profile
) -> Record:
    """Measure, and predict from the profile and the standards."""
    planned = _planned(grid.algorithms, master, feed, setting)
    runs = _runs(planned, master, feed, setting[0])
    warm = max(grid.pace.warm, master.rows / _SETTLING)
    standards = Standards(master)
    rates = _measured(runs, grid.pace._replace(warm=warm), standards)
    drift = profile.costs.drift(standards.seconds)
    cell = {"memory": setting[0], "drift": drift, "rates": rates}
    cell = _with_predictions(cell, planned, profile.costs)
    again = {name: runs[name] for name in contenders(cell)}
    cell |= _run_off(again, grid.pace) if again else {}
    for run in runs.values():
        run.join.close()
    return cell


def _run_off(runs: dict[str, Run], pace: Pace) -> Record:
    """Watch those that were about as fast once more, for longer."""
    seen = watch_in_turn(runs, pace._replace(rounds=_RUN_OFF * pace.rounds))
    return {"run_off": {name: _facts(slices) for name, slices in seen.items()}}


def run_offs(record: Record, folder: Path, say: Callable[[str], None]) -> Iterator[Record]:
    """Give the record with the run-offs that it lacks, after each."""
    one_thread()
    pace = Pace(*record["grid"]["pace"])
    for number, cell in enumerate(record["cells"]):
        names = contenders(cell)
        if "run_off" in cell or not names:
            continue
        say(f"R = {cell['rows']:,}, {cell['share']:.0%}, Zipf {cell['exponent']:g}: a run-off")
        master, feed = _at_hand(record, cell, folder, max(_FEED, 2 * cell["rows"]))
        runs = _runs(names, master, feed, cell["memory"])
        for run in runs.values():
            run.warm_up(max(pace.warm, master.rows / _SETTLING), SETTLING)
        found = _run_off(runs, pace)
        for run in runs.values():
            run.join.close()
        record["cells"][number] = cell | found
        yield record


def _with_predictions(cell: Record, planned: dict[str, Setting], costs: UnitCosts) -> Record:
    """Predict for joins that have had as many rows as those which were watched.

    And as a plan does, which knows neither the age of a join nor its batches; and without what the
    standards say of the disk.
    """
    now, rates = costs.drifted(cell["drift"]), {}
    for name, setting in planned.items():
        seen = cell["rates"][name]
        aged = replace(setting, age=seen.get("age", SETTLED))
        others = {
            "planned": rounded(predicted(name, replace(setting, batch=0), now).rate),
            "as_calibrated": rounded(predicted(name, aged, costs).rate),
        }
        rates[name] = seen | _expected(predicted(name, aged, now)) | others
    return {**cell, "rates": rates}


def _planned(
    names: Iterable[str], master: FileMaster, feed: Feed, setting: tuple[int, float]
) -> dict[str, Setting]:
    """Plan a join with each algorithm for which the budget is large enough."""
    memory, exponent = setting
    spec = JoinSpec.resolve(master, feed.schema, "key", "inner", None, "")
    demand = Demand.zipf(master.statistics.values, exponent, master.pages)
    found = {}
    for name in names:
        try:
            _, task, plan = choose(name, spec, memory, None, {})
        except BudgetError:
            continue
        found[name] = Setting(task, plan, demand, Fit(), batch=BATCH_ROWS)
    return found


def _runs(names: Iterable[str], master: FileMaster, feed: Feed, memory: int) -> dict[str, Run]:
    """Begin a join with each algorithm."""
    return {
        name: Run(
            Join(master, feed.schema, on="key", memory=memory, algorithm=name), feed.forever()
        )
        for name in names
    }


def _measured(runs: dict[str, Run], pace: Pace, standards: Standards) -> dict[str, Record]:
    """Measure the algorithms in turn; each goes on where its last slice ended.

    Rates are given as they were, and as they are without stalls of the machine (``steady``).
    """
    for run in runs.values():
        run.warm_up(pace.warm, SETTLING)
    before = {name: run.join.metrics.rows_in for name, run in runs.items()}
    seen = watch_in_turn(runs, pace, standards.turn)
    ages = {name: (before[name] + run.join.metrics.rows_in) // 2 for name, run in runs.items()}
    return {name: _facts(slices) | {"age": ages[name]} for name, slices in seen.items()}


def _facts(slices: list[Slice]) -> Record:
    rows, pages = sum(part.rows for part in slices), sum(part.pages for part in slices)
    return {
        "rate": rounded(rows / sum(part.seconds for part in slices)),
        "steady": rounded(rows / steady_seconds(slices)),
        "samples": [rounded(part.rows / part.seconds) for part in slices],
        "rows_a_page": round(rows / max(1, pages), 2),
        "hits": round(sum(part.hits for part in slices) / max(1, rows), 4),
    }


def _expected(prediction: Prediction) -> Record:
    loop = prediction.loop
    return {
        "predicted": rounded(prediction.rate),
        "predicted_rows_a_page": round(1 / max(loop.pages_a_row, 1e-9), 2),
        "predicted_hits": round(loop.hit_rate, 4),
    }


def predicted_again(record: Record, folder: Path, costs: UnitCosts) -> Record:
    """Give the record with the predictions of the models as they are now, from these costs."""
    cells = []
    for cell in record["cells"]:
        master, feed = _at_hand(record, cell, folder)
        setting = (cell["memory"], cell["exponent"])
        planned = _planned(cell["rates"], master, feed, setting)
        cells.append(_with_predictions(cell, planned, costs))
    return {**record, "cells": cells}


def _at_hand(
    record: Record, cell: Record, folder: Path, stream_rows: int = 0
) -> tuple[FileMaster, Feed]:
    workload = Workload("1:1", cell["rows"])
    path = workload.prepare(folder, record["grid"]["page_bytes"])
    stream = workload.stream(cell["exponent"])
    return open_master(path, record["grid"]["read"]), Feed.of(stream, stream_rows)
