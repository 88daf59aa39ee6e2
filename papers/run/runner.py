"""Running experiments: what is measured is kept after every group, and never measured twice."""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from benchmarks.harness.machine import describe
from benchmarks.harness.record import read_record, write_record
from benchmarks.harness.run import one_thread
from papers.run.cells import groups
from papers.run.measure import Bench, pinned, rates
from papers.run.nodes import side_by_side
from papers.run.searches import least, optimum, reads
from papers.run.sources import origin_of, prepare
from semistream.planning.measure import machine_at_hand
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from papers.experiment import Experiment
    from papers.run.cells import Cell, Group
    from papers.run.scale import Scale
    from semistream.planning.machine import Machine

    Record = dict[str, Any]

__all__ = ["begin", "loaded", "measured", "path_of", "steps", "with_points"]


def steps(experiment: Experiment, scale: Scale) -> int:
    """Give how many groups an experiment has."""
    return sum(1 for _ in groups(experiment, scale.factor(experiment)))


def path_of(output: Path, name: str) -> Path:
    """Give the file of an experiment's raw runs."""
    return output / "runs" / f"{name}.json"


def begin(name: str, experiment: Experiment, scale: Scale) -> Record:
    """Make a record without runs."""
    return {
        "kind": "reproduce",
        "experiment": name,
        "definition": sha256(repr(experiment).encode()).hexdigest()[:12],
        "measures": experiment.kind,
        "vary": experiment.vary,
        "scale": scale.name,
        "factor": scale.factor(experiment),
        "pace": list(scale.pace),
        "page_bytes": scale.page_bytes,
        "read": "direct",
        "origin": "",
        "machine": describe(),
        "groups": [],
        "runs": [],
    }


def measured(
    name: str,
    experiment: Experiment,
    scale: Scale,
    output: Path,
    machine: Machine | None,
    say: Callable[[str], None],
) -> Iterator[Record]:
    """Measure an experiment; give its record after every group, those done before included.

    Predictions are for ``machine``, or for this one, measured with the rows of each group.
    """
    one_thread()
    path = path_of(output, name)
    fresh = begin(name, experiment, scale)
    fresh["origin"] = origin_of(experiment.data, output / "data")
    record = _resumed(path, fresh)
    for group in groups(experiment, record["factor"]):
        if group.name not in record["groups"]:
            say(f"{name}, {group.name}")
            folder = output / "data"
            data = prepare(experiment.data, group.rows, group.exponent, scale, folder)
            spec = JoinSpec.resolve(data.master, data.schema, data.on, "inner", None, "")
            costs = machine or machine_at_hand(spec, data.view)
            bench = Bench(data, costs, scale.settled(group.rows))
            found = _group(group, experiment, bench, folder)
            record["runs"] += [_run(group, cell, facts) for cell, facts in found]
            record["groups"].append(group.name)
            write_record(record, path)
        yield record


def _resumed(path: Path, fresh: Record) -> Record:
    """Take what was measured before, if it is the same experiment, scale, data and code."""
    if not path.exists():
        return fresh
    before = read_record(path)
    same = ("experiment", "definition", "scale", "pace", "page_bytes", "origin")
    if any(before.get(what) != fresh[what] for what in same):
        return fresh
    return before if before["machine"]["source"] == fresh["machine"]["source"] else fresh


def _group(
    group: Group, experiment: Experiment, bench: Bench, folder: Path
) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
    if experiment.kind == "nodes":
        return side_by_side(group, bench, folder)
    if experiment.kind == "tasks":
        from papers.run.tasks import on_spark

        return on_spark(group, bench, folder)
    kinds: dict[str, Callable[[Group, Bench], Iterator[tuple[Cell, dict[str, Any]]]]] = {
        "optimum": optimum,
        "reads": reads,
        "least": least,
        "pinned": pinned,
    }
    return kinds.get(experiment.kind, rates)(group, bench)


def _run(group: Group, cell: Cell, facts: Mapping[str, Any]) -> Record:
    where = {"group": group.name, "x": cell.x, "label": cell.label, "rows": cell.rows}
    return {**where, "exponent": cell.exponent, **facts}


def loaded(output: Path, name: str) -> Record | None:
    """Read what was measured of an experiment; None where nothing was."""
    path = path_of(output, name)
    return with_points(read_record(path)) if path.exists() else None


def with_points(record: Record) -> Record:
    """Add the runs by x: what rules and figures look at.

    A line that has no such part of memory as is varied is the same at every x.
    """
    points: dict[float, Record] = defaultdict(dict)
    xs = sorted({run["x"] for run in record["runs"]})
    for run in record["runs"]:
        level = record["measures"] == "curve" and run["label"].startswith("adaptive")
        for x in xs if level else (run["x"],):
            points[x][run["label"]] = run
    return {**record, "points": [{"x": x, "runs": points[x]} for x in xs]}
