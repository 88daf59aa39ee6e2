"""Measuring tuning: the model's choice of every knob against the best that is measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from semistream.bench.matrix import one_thread
from semistream.bench.tuning_cell import Case, tuned_cell
from semistream.bench.workload import Feed, Workload
from semistream.cost.calibration.reads import reads_of, with_reads_of
from semistream.cost.demand import Demand
from semistream.cost.tuning.measure import Sampling
from semistream.machine import describe
from semistream.master import open_master
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from semistream.cost.profile import Profile
    from semistream.master import Master

    Record = dict[str, Any]
    Say = Callable[[str], None]

__all__ = ["TuningGrid", "begin", "measure_tuning"]

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
        small = 1 << 14
        return replace(
            self,
            rows=min(self.rows, 200_000),
            shares=(0.10,),
            exponents=(1.0,),
            page_bytes=small,
            page_sizes=(small // 2, small, 2 * small),
            points=3,
            sampling=Sampling(0.05, 0.4, self.sampling.rounds, 3),
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
        with_reads_of(profile.costs, master, grid.read_seconds),
        reads_of(masters[min(masters)], grid.read_seconds) if grid.paged else {},
    )
