"""Measuring how well the cost models predict: every algorithm, predicted and measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistream.algorithms import AUTO
from semistream.bench.matrix import one_thread
from semistream.bench.run import Run, rounded
from semistream.bench.workload import Feed, Workload
from semistream.cost.calibration.standards import Standards
from semistream.cost.calibration.turns import (
    SETTLING,
    Pace,
    Slice,
    steady_seconds,
    watch_in_turn,
)
from semistream.cost.demand import Demand
from semistream.cost.predict import Prediction, predict
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.machine import describe
from semistream.master import open_master
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from semistream.cost.profile import Profile
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import Master

    Record = dict[str, Any]

__all__ = ["ModelGrid", "measure_model", "predicted_again"]


_PACE = Pace(seconds=0.15, rounds=12, warm=1.5)
_SETTLING = 1.6e6  # rows of R whose caches settle in a second
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
    grid: ModelGrid, folder: Path, profile: Profile, say: Callable[[str], None]
) -> Iterator[Record]:
    """Give the record after every setting, each time with one cell more.

    A prediction is made of the profile, and of what standards took that were timed in turn with the
    algorithms; what an algorithm did has no part in it.
    """
    one_thread()
    record: Record = {
        "kind": "model",
        "what": "stream rows a second, predicted and measured, one thread",
        "machine": describe(),
        "grid": asdict(grid),
        "profile": {"machine": dict(profile.machine), "costs": profile.costs.as_dict()},
        "cells": [],
    }
    for rows in grid.rows:
        say(f"R = {rows:,}: the master")
        workload = Workload("1:1", rows)
        master = open_master(workload.prepare(folder, grid.page_bytes), grid.read)
        for exponent in grid.exponents:
            feed = Feed.of(workload.stream(exponent), max(_FEED, 2 * rows))
            for share in grid.shares:
                say(f"R = {rows:,}, {share:.0%}, Zipf {exponent:g}")
                found = _cell(grid, master, feed, (int(share * workload.bytes), exponent), profile)
                cell = {"rows": rows, "share": share, "exponent": exponent}
                record["cells"].append(cell | found)
                yield record


def _cell(
    grid: ModelGrid, master: Master, feed: Feed, setting: tuple[int, float], profile: Profile
) -> Record:
    """Measure, ``auto`` beside the others; predict from the profile and the standards."""
    calibrated = _predictions(grid.algorithms, master, feed, setting, profile.costs)
    runs = _runs(calibrated, master, feed, setting[0], profile)
    warm = max(grid.pace.warm, master.rows / _SETTLING)
    standards = Standards(master)
    rates = _measured(runs, grid.pace._replace(warm=warm), standards)
    auto = rates.pop(AUTO) | {"chosen": runs[AUTO].join.plan.algorithm}
    for run in runs.values():
        run.join.close()
    drift = profile.costs.drift(standards.seconds)
    cell = {"memory": setting[0], "drift": drift, "rates": rates, "auto": auto}
    now = _predictions(tuple(rates), master, feed, setting, profile.costs.drifted(drift))
    return _with_predictions(cell, calibrated, now)


def _with_predictions(
    cell: Record, calibrated: dict[str, Prediction], now: dict[str, Prediction]
) -> Record:
    rates = {
        name: cell["rates"][name]
        | _expected(now[name])
        | {"as_calibrated": rounded(calibrated[name].rate)}
        for name in now
    }
    return {**cell, "rates": rates}


def _predictions(
    names: tuple[str, ...],
    master: Master,
    feed: Feed,
    setting: tuple[int, float],
    costs: UnitCosts,
) -> dict[str, Prediction]:
    memory, exponent = setting
    spec = JoinSpec.resolve(master, feed.schema, "key", "inner", None, "")
    demand = Demand.zipf(master.statistics.values, exponent, master.pages)
    found = {}
    for name in names:
        try:
            found[name] = predict(name, spec, memory, demand, costs)
        except BudgetError:
            continue
    return found


def _runs(
    names: Iterable[str], master: Master, feed: Feed, memory: int, profile: Profile
) -> dict[str, Run]:
    """Begin a join with each algorithm, and one that chooses by the profile."""
    options: dict[str, dict[str, Any]] = {name: {} for name in names} | {AUTO: {"profile": profile}}
    return {
        name: Run(
            Join(master, feed.schema, on="key", memory=memory, algorithm=name, **given),
            feed.forever(),
        )
        for name, given in options.items()
    }


def _measured(runs: dict[str, Run], pace: Pace, standards: Standards) -> dict[str, Record]:
    """Measure the algorithms in turn; each goes on where its last slice ended.

    Rates are given as they were, and as they are without stalls of the machine (``steady``).
    """
    for run in runs.values():
        run.warm_up(pace.warm, SETTLING)
    seen = watch_in_turn(runs, pace, standards.turn)
    return {name: _facts(slices) for name, slices in seen.items()}


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
        names = tuple(cell["rates"])
        calibrated, now = (
            _predictions(names, master, feed, setting, some)
            for some in (costs, costs.drifted(cell["drift"]))
        )
        cells.append(_with_predictions(cell, calibrated, now))
    return {**record, "cells": cells}


def _at_hand(record: Record, cell: Record, folder: Path) -> tuple[Master, Feed]:
    workload = Workload("1:1", cell["rows"])
    path = workload.prepare(folder, record["grid"]["page_bytes"])
    stream = workload.stream(cell["exponent"])
    return open_master(path, record["grid"]["read"]), Feed.of(stream, 0)
