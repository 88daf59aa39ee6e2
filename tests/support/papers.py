"""Experiments of the papers in small."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.rounds import Pace
from papers.reading import experiments
from papers.run.scale import Scale
from semistream.planning.machine import Machine

TINY = Scale("tiny", Pace(0.005, 2, 0.01), "4KB", 60_000, feed_rows=20_000, candidates=3)
MACHINE = Machine()
EXPERIMENTS = experiments()


def record_of(name: str, factor: float = 1.0) -> dict[str, Any]:
    """Make a record of a figure in which every line has the rate 1 at every point."""
    experiment = EXPERIMENTS[name]
    run = {"value": 1.0, "samples": [1.0, 1.0, 1.0], "pages_a_row": 1.0, "hits": 0.5}
    points = [
        {"x": x, "runs": {line: {**run, "predicted": 1.0} for line in experiment.series}}
        for x in experiment.values
    ]
    facts = {"factor": factor, "vary": experiment.vary, "measures": experiment.kind, "origin": ""}
    return {**facts, "points": points}
