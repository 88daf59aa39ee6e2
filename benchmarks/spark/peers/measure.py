"""All that is measured beside the alternatives, into one record."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark.engine import EngineError, Engines
from benchmarks.spark.flink.run import FlinkError
from benchmarks.spark.grid import DROPPED
from benchmarks.spark.live.store import JARS
from benchmarks.spark.peers.contest import Contest
from benchmarks.spark.peers.grid import PARTS
from benchmarks.spark.peers.growth import measure_cores, measure_growth, settings_of_growth
from benchmarks.spark.peers.lookup import measure_flink
from benchmarks.spark.peers.memory import measure_memory, measured_memory
from benchmarks.spark.peers.steady import SYSTEMS_STEADY, measure_steady
from benchmarks.spark.queries import versions
from benchmarks.spark.systems import SYSTEMS
from benchmarks.spark.systems.ours import PUBLISHED, ours_of
from semistream.spark.cluster.jars import DELTA_CATALOG, EXTENSIONS, artifacts, folder_for
from semistream.spark.cluster.maven import JarsError, download
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.spark.peers.grid import Cell, PeersGrid

_SETTING = ("rows", "how", "batch_rows", "exponent", "share", "duplicates")
_OF_A_RUN = ("date", "source", "load", "cpu")  # what differs where parts are measured one by one
_DELTA = {
    "spark.sql.extensions": EXTENSIONS["delta"],
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
}

__all__ = ["PeersBench", "steps"]


def steps(grid: PeersGrid, parts: tuple[str, ...]) -> int:
    """Give how many records `PeersBench.run` gives, where nothing fails."""
    many = {
        "cells": len(_cells(grid)),
        "flink": 1,
        "memory": len(measured_memory(grid)),
        "growth": len(settings_of_growth(grid, Path())),
        "cores": 2 * grid.rounds,
        "steady": len(SYSTEMS_STEADY),
    }
    return sum(many[part] for part in parts)


def _cells(grid: PeersGrid) -> list[Cell]:
    """Give all settings; in one of them every published algorithm is measured too."""
    cells = list(grid.cells)
    if grid.published_cell is not None:
        place = cells.index(grid.published_cell)
        names = tuple(map(ours_of, PUBLISHED))
        cells[place] = replace(cells[place], systems=cells[place].systems + names)
    return cells


def _identity(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Tell cells apart: one that is measured again takes the place of the earlier one."""
    return tuple(cell[name] for name in _SETTING)


def _run_of(record: dict[str, Any]) -> dict[str, Any]:
    """Tell the run that measured something from others, whose parts may stand beside it."""
    return {what: record["machine"][what] for what in _OF_A_RUN}


@dataclass
class PeersBench:
    """Measures part after part; what cannot be had is named and left out."""

    grid: PeersGrid
    folder: Path
    url: str = field(repr=False)
    say: Callable[[str], None]

    def run(self, parts: tuple[str, ...], earlier: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the record after every step; parts that are not measured stay as they were."""
        kept = set(PARTS) - set(parts)
        left_out = {k: why for k, why in earlier.get("left_out", {}).items() if k in kept}
        config = self._config(left_out)
        with self._engines(config) as engines:
            self.say("starting Spark")
            machine = describe() | engines.call("main", versions)
            record = earlier | {
                "kind": "peers",
                "what": "milliseconds of micro-batches on Spark, ours beside the alternatives",
                "machine": machine,
                "grid": asdict(self.grid),
                "dropped": DROPPED,
                "labels": {name: system.label for name, system in SYSTEMS.items()},
                "left_out": left_out,
            }
            for part in parts:
                yield from self._part(part, record, engines, config)

    def _part(
        self, part: str, record: dict[str, Any], engines: Engines, config: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        if part == "cells":
            yield from self._measured_cells(record, engines)
            return
        record.pop(part, None)  # of another run
        record["measured"] = record.get("measured", {}) | {part: _run_of(record)}
        try:
            for found in self._entries(part, engines, config):
                record[part] = found if part == "flink" else [*record.get(part, ()), found]
                yield record
        except (EngineError, FlinkError) as error:
            record["left_out"][part] = str(error)
            yield record

    def _entries(
        self, part: str, engines: Engines, config: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        grid, folder, say = self.grid, self.folder, self.say
        if part == "memory":
            return measure_memory(grid, folder, config, self.url, say)
        if part == "growth":
            return measure_growth(grid, folder, engines, self._order(), say)
        if part == "cores":
            return measure_cores(grid, folder, config, say)
        if part == "steady":
            return measure_steady(grid, folder, engines, say)
        return iter([measure_flink(grid, folder, engines, self.url, say)])

    def _order(self) -> random.Random:
        return random.Random(self.grid.seed)  # noqa: S311 - an order

    def _measured_cells(self, record: dict[str, Any], engines: Engines) -> Iterator[dict[str, Any]]:
        contest = Contest(self.grid, self.folder, engines, self._order(), self.say, self.url)
        cells = {_identity(cell): cell for cell in record.get("cells", [])}
        for cell in _cells(self.grid):
            about = {k: v for k, v in asdict(cell).items() if k != "systems"}
            measured = contest.measure(cell) | {"measured": _run_of(record)}
            cells[_identity(about)] = about | measured
            yield record | {"cells": list(cells.values())}
        record["cells"] = list(cells.values())

    def _engines(self, config: dict[str, str]) -> Engines:
        more = {"broadcast": {"spark.driver.memory": self.grid.broadcast_memory}}
        masters = {"main": "local[2]", "broadcast": "local[2]"}
        return Engines(masters, config, longest=900.0, special=more)

    def _config(self, left_out: dict[str, str]) -> dict[str, str]:
        """Give Spark's settings, with the jars that can be had."""
        jars = []
        for name, wanted in {"jdbc": JARS[:1], "delta": artifacts("delta")}.items():
            try:
                jars += [download(jar, folder_for() / name) for jar in wanted]
            except JarsError as error:
                left_out[name] = str(error)
        config = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.driver.memory": self.grid.driver_memory,
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.maxResultSize": "0",  # else a broadcast fails by a limit, not for memory
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            "spark.log.level": "OFF",  # a join that runs out of memory says so in the record
        }
        return config if "delta" in left_out else config | _DELTA
