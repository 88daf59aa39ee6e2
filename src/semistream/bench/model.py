"""Measuring how well the cost models predict: every algorithm, predicted and measured."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.algorithms import choose
from semistream.bench.matrix import one_thread
from semistream.bench.run import Run, rounded
from semistream.bench.workload import Feed, Workload
from semistream.cost.calibration.runs import Observed, Trial, counted, fitted
from semistream.cost.calibration.yardstick import Yardstick
from semistream.cost.demand import Demand
from semistream.cost.models import Setting, kind_of
from semistream.cost.predict import Prediction, predict
from semistream.cost.unit_costs import Fit
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.machine import describe
from semistream.master import open_master
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.cost.profile import Profile
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import Master
    from semistream.metrics import Metrics

    Record = dict[str, Any]
    Known = tuple[dict[str, Prediction], float]

__all__ = ["ModelGrid", "fitted_to", "measure_model", "predicted_again", "refitted"]


class Sample(NamedTuple):
    """What one sample of a join gave."""

    rows: int
    seconds: float
    pace: float
    """Seconds of the yardstick beside it."""


@dataclass(frozen=True)
class ModelGrid:
    """What is predicted and measured."""

    algorithms: tuple[str, ...]
    rows: tuple[int, ...] = (500_000, 2_000_000, 8_000_000)
    shares: tuple[float, ...] = (0.01, 0.05, 0.10, 0.20)
    exponents: tuple[float, ...] = (0.0, 0.5, 1.0)
    read: str = "direct"
    seconds: float = 0.3
    """How long each sample takes at least; it lasts until a window of rows was answered."""
    rounds: int = 2
    warm: float = 2.0
    """Seconds for caches to settle, at most."""
    page_bytes: str = "128KB"

    @property
    def cells(self) -> int:
        """How many settings there are."""
        return len(self.rows) * len(self.shares) * len(self.exponents)


def measure_model(
    grid: ModelGrid, folder: Path, profile: Profile, say: Callable[[str], None]
) -> Iterator[Record]:
    """Give the record after every setting, each time with one cell more.

    Predictions are made from the profile before anything of the cell is measured.
    """
    one_thread()
    record: Record = {
        "kind": "model",
        "what": "stream rows a second, predicted and measured, one thread",
        "machine": describe(),
        "grid": asdict(grid),
        "profile": {"machine": dict(profile.machine), "costs": profile.costs.as_dict()},
        "paces": dict(profile.paces),
        "cells": [],
    }
    for rows in grid.rows:
        say(f"R = {rows:,}: the master")
        workload = Workload("1:1", rows)
        master = open_master(workload.prepare(folder, grid.page_bytes), grid.read)
        for exponent in grid.exponents:
            feed = Feed.of(workload.stream(exponent), max(4_000_000, rows))
            for share in grid.shares:
                say(f"R = {rows:,}, {share:.0%}, Zipf {exponent:g}")
                cell = {"rows": rows, "share": share, "exponent": exponent}
                memory = int(share * workload.bytes)
                setting = (memory, exponent)
                expected = _predictions(grid.algorithms, master, feed, setting, profile.costs)
                known = expected, profile.paces[grid.read]
                rates = _measure(grid, master, feed, memory, known)
                record["cells"].append({**cell, "memory": memory, "rates": rates})
                yield record


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


def _measure(
    grid: ModelGrid, master: Master, feed: Feed, memory: int, known: Known
) -> dict[str, Record]:
    """Measure each algorithm in turn, round by round; each goes on where its last sample ended.

    Beside every sample the yardstick is read: what is measured is given as it was, and as it
    would be at the speed that the machine had when it was calibrated (``steady``).
    """
    expected, pace = known
    runs = {
        name: Run(
            Join(master, feed.schema, on="key", memory=memory, algorithm=name), feed.forever()
        )
        for name in expected
    }
    yardstick = Yardstick(master, feed.batches)
    for run in runs.values():
        run.warm_up(grid.warm)
    before = {name: run.join.metrics for name, run in runs.items()}
    samples: dict[str, list[Sample]] = {name: [] for name in runs}
    for _ in range(grid.rounds):
        for name, run in runs.items():
            samples[name].append(_sample(grid, run, yardstick))
    return {
        name: _facts(before[name], run.join.metrics)
        | _rates(samples[name], pace)
        | _expected(expected[name])
        for name, run in runs.items()
    }


def _sample(grid: ModelGrid, run: Run, yardstick: Yardstick) -> Sample:
    answered, slow = run.join.metrics.answered, yardstick()
    spent = run.watch(grid.seconds, 1.0, 5 * grid.seconds)
    return Sample(run.join.metrics.answered - answered, spent, (slow + yardstick()) / 2)


def _rates(samples: list[Sample], pace: float) -> Record:
    rows = sum(sample.rows for sample in samples)
    return {
        "rate": rounded(rows / sum(sample.seconds for sample in samples)),
        "steady": rounded(rows / sum(s.seconds * pace / s.pace for s in samples)),
        "samples": [rounded(sample.rows / sample.seconds) for sample in samples],
        "paces": [float(f"{sample.pace / pace:.3f}") for sample in samples],
    }


def _facts(before: Metrics, after: Metrics) -> Record:
    answered, pages = after.answered - before.answered, after.pages_read - before.pages_read
    return {
        "rows_a_page": round(answered / max(1, pages), 2),
        "hits": round((after.cache_hits - before.cache_hits) / max(1, answered), 4),
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
        found = _predictions(tuple(cell["rates"]), master, feed, setting, costs)
        rates = {name: cell["rates"][name] | _expected(found[name]) for name in found}
        cells.append({**cell, "rates": rates})
    return {**record, "cells": cells}


def _at_hand(record: Record, cell: Record, folder: Path) -> tuple[Master, Feed]:
    workload = Workload("1:1", cell["rows"])
    path = workload.prepare(folder, record["grid"]["page_bytes"])
    stream = workload.stream(cell["exponent"])
    return open_master(path, record["grid"]["read"]), Feed.of(stream, 0)


def fitted_to(record: Record, rows: int, folder: Path, costs: UnitCosts) -> UnitCosts:
    """Give the costs with the factors that fit the cells of one size of R.

    A calibration sees every algorithm in a few short runs. Twelve cells say more; what is then
    predicted for the other sizes tells how well the models go from one to another.
    """
    read, runs = record["grid"]["read"], defaultdict(list)
    for cell in (cell for cell in record["cells"] if cell["rows"] == rows):
        master, feed = _at_hand(record, cell, folder)
        spec = JoinSpec.resolve(master, feed.schema, "key", "inner", None, "")
        demand = Demand.zipf(master.statistics.values, cell["exponent"], master.pages)
        for name, rate in cell["rates"].items():
            _, task, plan = choose(name, spec, cell["memory"], None, {})
            run = Observed(
                kind=kind_of(plan),
                trial=Trial(cell["share"], cell["exponent"], read),
                seconds=1.0,
                answered=rate["steady"],
                pages=round(rate["steady"] / rate["rows_a_page"]),
                hits=rate["hits"],
                setting=Setting(task, plan, demand, Fit()),
            )
            runs[f"{run.kind} {read}"].append(run)
    fits = {
        kind: fitted(some, costs, counted(some), costs.fits[kind]) for kind, some in runs.items()
    }
    return replace(costs, fits={**costs.fits, **fits})


def refitted(record: Record, folder: Path, costs: UnitCosts) -> Record:
    """Add what is predicted with factors that fit the cells of the middle size of R."""
    sizes = sorted({cell["rows"] for cell in record["cells"]})
    middle = sizes[len(sizes) // 2]
    again = predicted_again(record, folder, fitted_to(record, middle, folder, costs))
    cells = []
    for cell, other in zip(record["cells"], again["cells"], strict=True):
        rates = {
            name: {**rate, "refitted": other["rates"][name]["predicted"]}
            for name, rate in cell["rates"].items()
        }
        cells.append({**cell, "rates": rates})
    return {**record, "fitted_to": middle, "cells": cells}
