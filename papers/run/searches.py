"""Experiments whose result is looked for: the best buffer, the least memory, the cost of reads."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.samples import rounded
from papers.run.measure import facts_of, middle, started, watched
from semistream.engine.plan import Task
from semistream.errors import BudgetError
from semistream.planning.curve import Asked, draw_curve
from semistream.planning.planner import JoinPredictor
from semistream.planning.tune import knobs_of, tune

if TYPE_CHECKING:
    from collections.abc import Iterator

    from papers.run.cells import Cell, Group
    from papers.run.measure import Bench

    Facts = dict[str, Any]

__all__ = ["crossing", "least", "optimum", "reads"]

_FEW = 8  # reads of each size in a round


def optimum(group: Group, bench: Bench) -> Iterator[tuple[Cell, Facts]]:
    """Find the best disk buffer: by the model, and of several that are measured in turn."""
    (cell,) = group.cells
    model, *_ = tune(bench.problem(cell), cell.memory)
    ((option, values),) = knobs_of(cell.series.algorithm).items()
    chosen = int(model.options[option])
    task = Task.of(bench.spec(cell), cell.memory, None)
    sizes = sorted({chosen, *(int(size) for size in values(task, bench.scale.candidates))})
    tried = {str(size): replace(cell, knobs=((option, size),)) for size in sizes}
    runs = {size: started(one, bench) for size, one in tried.items()}
    seen = {size: facts_of(some) for size, some in watched(runs, bench.scale).items()}
    for run in runs.values():
        run.join.close()
    best = max(seen, key=lambda size: seen[size].get("value", 0))
    rounds = list(zip(*(seen[size]["samples"] for size in seen), strict=False))
    samples = [sizes[int(np.argmax(one))] for one in rounds]
    found = {"value": int(best), "predicted": chosen, "samples": samples, "memory": cell.memory}
    yield (
        cell,
        found | {"curve": [[int(size), facts.get("value", 0)] for size, facts in seen.items()]},
    )


def reads(group: Group, bench: Bench) -> Iterator[tuple[Cell, Facts]]:
    """Measure what a page costs when as many are read at once as the buffer holds."""
    master, draw = bench.data.master, np.random.default_rng(0)
    page = master.manifest.page_bytes
    counts = {
        cell: max(1, min(round(dict(cell.knobs)["buffer"] / page), master.statistics.parts))
        for cell in group.cells
    }
    readers = {cell: master.reader(count) for cell, count in counts.items()}
    spent: dict[Cell, list[float]] = {cell: [] for cell in counts}
    for _ in range(bench.scale.pace.rounds):
        for cell, count in counts.items():
            start = time.perf_counter()
            for _ in range(_FEW):
                first = int(draw.integers(0, master.statistics.parts - count + 1))
                readers[cell].load(first, count)
            spent[cell].append((time.perf_counter() - start) / _FEW / count)
    for cell, samples in spent.items():
        predicted = bench.machine.read_seconds(counts[cell] * page) / counts[cell]
        found = {"value": middle(samples), "samples": samples, "predicted": predicted}
        yield cell, found | {"pages": counts[cell]}


def least(group: Group, bench: Bench) -> Iterator[tuple[Cell, Facts]]:
    """Find the least memory for a rate: by the planner, and by rates measured around it."""
    for cell in group.cells:
        planned = draw_curve(JoinPredictor(bench.problem(cell)), Asked(rate=cell.rate)).chosen
        if planned is None:
            yield cell, {"refused": f"no budget is predicted to give {cell.rate:,.0f} rows/s"}
            continue
        found = _around(cell, bench, planned.memory)
        yield cell, found | {"predicted": planned.memory, "rate": cell.rate}


def _around(cell: Cell, bench: Bench, planned: int) -> Facts:
    runs = {}
    for times in bench.scale.budgets:
        try:
            memory = int(times * planned)
            runs[str(memory)] = started(cell, bench, memory)
        except BudgetError:
            continue
    seen = {int(name): facts_of(some) for name, some in watched(runs, bench.scale).items()}
    for run in runs.values():
        run.join.close()
    curve = [(float(memory), float(facts.get("value", 0))) for memory, facts in seen.items()]
    found = crossing(curve, cell.rate)
    raw = [{"memory": memory, **facts} for memory, facts in seen.items()]
    if found is None:
        most = max(reached for _, reached in curve)
        return {"refused": f"measured {most:,.0f} rows/s at most", "curve": raw}
    return {"value": rounded(found), "curve": raw}


def crossing(curve: list[tuple[float, float]], rate: float) -> float | None:
    """Give the memory at which a measured rate is reached, between two budgets by their logarithms.

    The least budget that was tried is the answer where even that suffices; None where none does.

    Examples
    --------
    >>> crossing([(10.0, 100.0), (40.0, 400.0)], 200.0)
    20.0
    >>> crossing([(10.0, 100.0)], 200.0)
    """
    before: tuple[float, float] | None = None
    for memory, reached in sorted(curve):
        if reached >= rate:
            if before is None:
                return memory
            low, slow = before
            part = np.log(rate / slow) / np.log(reached / slow)
            return float(low * (memory / low) ** part)
        before = memory, max(reached, 1.0)
    return None
