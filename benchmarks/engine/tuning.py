"""Measuring tuning: the model's choice of every knob against the best that is measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from benchmarks.workload import Feed, Workload
from semistream.cost.calibration.reads import reads_of, with_reads_of
from semistream.cost.demand import Demand
from semistream.cost.run import one_thread
from semistream.cost.tuning.cell import Case, tuned_cell
from semistream.cost.tuning.measure import Sampling
from semistream.cost.tuning.record import begin
from semistream.master import open_master
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from semistream.cost.profile import Profile
    from semistream.cost.tuning.record import TuningGrid
    from semistream.master import FileMaster

    Record = dict[str, Any]
    Say = Callable[[str], None]

__all__ = ["cells", "measure_tuning", "small", "written_bytes"]


def small(grid: TuningGrid) -> TuningGrid:
    """Give a few cells of a small master, with pages small enough for it."""
    page = 1 << 14
    return replace(
        grid,
        rows=min(grid.rows, 200_000),
        shares=(0.10,),
        exponents=(1.0,),
        page_bytes=page,
        page_sizes=(page // 2, page, 2 * page),
        points=3,
        sampling=Sampling(0.05, 0.4, grid.sampling.rounds, 3),
        read_seconds=0.1,
    )


def cells(grid: TuningGrid) -> int:
    """Give how many curves there are."""
    each = len(grid.algorithms) + len(grid.paged)
    return each * len(grid.shares) * len(grid.exponents)


def written_bytes(grid: TuningGrid) -> int:
    """Give about what the masters take on disk."""
    sizes = {grid.page_bytes, *(grid.page_sizes if grid.paged else ())}
    return int(1.05 * len(sizes) * Workload("1:1", grid.rows).bytes)


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
    masters: Mapping[int, FileMaster],
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
