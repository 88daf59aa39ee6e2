"""What a read of the master costs: the curve c_I/O over its bytes, measured on the real store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.unit_costs import Curve, UnitCosts, way

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semistream.master import FileMaster

__all__ = ["ahead_curve", "median_curve", "read_curve", "reads_of", "time_reads", "with_reads_of"]

_PAGES = (1, 2, 4, 8, 16)
_AHEAD = (1, 3)
_ANOTHER = 2.0  # times as dear, or as cheap: another disk
_RUNS = 64  # of a sweep
_FEWEST = 12  # reads of each size, however long they take


def with_reads_of(costs: UnitCosts, master: FileMaster, seconds: float) -> UnitCosts:
    """Give costs with what reads of this master cost, if that is something else altogether.

    A master may lie on another disk than the profile's. But a second of reads by themselves says
    less of a loop than the profile does, whose reads and steps were measured together: so it counts
    only where it is more than twice as much, or less than half.
    """
    found = reads_of(master, seconds)
    size = float(master.statistics.largest_part)
    ratio = found[master.read](size) / costs.c_io[master.read](size)
    return costs if 1 / _ANOTHER <= ratio <= _ANOTHER else costs.with_reads(found)


def reads_of(master: FileMaster, seconds: float, seed: int = 0) -> dict[str, Curve]:
    """Measure what reads of this master cost, in its way, one by one and with others in flight.

    Another disk than the profile's, or a busy one, is so taken into account.
    """
    each = seconds / (1 + len(_AHEAD))
    ahead = {way(master.read, n): ahead_curve(master, n, each, seed) for n in _AHEAD}
    return {master.read: read_curve(master, each, seed), **ahead}


def time_reads(
    master: FileMaster, seconds: float, draw: np.random.Generator
) -> Iterator[tuple[str, float]]:
    """Give each way to read with the seconds of a read of one page."""
    yield master.read, _read(master, 1, seconds, draw)[1]
    for ahead in _AHEAD:
        yield way(master.read, ahead), _sweep(master, (1, ahead), seconds, draw)[1]


def read_curve(master: FileMaster, seconds: float, seed: int = 0) -> Curve:
    """Give the seconds of one read, over its bytes: checksum and parsing included.

    Pages are drawn at random: on the disks of today a scan in order is no faster, and where the
    operating system holds pages they are read by neither.
    """
    draw = np.random.default_rng(seed)
    sizes = [pages for pages in _PAGES if pages <= max(1, master.pages // 2)]
    found = [_read(master, pages, seconds / len(sizes), draw) for pages in sizes]
    return _rising([size for size, _ in found], [spent for _, spent in found])


def _read(
    master: FileMaster, pages: int, seconds: float, draw: np.random.Generator
) -> tuple[float, float]:
    reader = master.reader(pages)
    spent: list[float] = []
    parts = master.statistics.parts
    until = time.perf_counter() + seconds
    while len(spent) < _FEWEST or time.perf_counter() < until:
        part = int(draw.integers(0, parts - pages + 1))
        start = time.perf_counter()
        reader.load(part, pages)
        spent.append(time.perf_counter() - start)
    return reader.bytes_read / reader.reads, _mean(spent)


def ahead_curve(master: FileMaster, ahead: int, seconds: float, seed: int = 0) -> Curve:
    """Give the seconds of one read when so many others are in flight, as sweeps read."""
    draw = np.random.default_rng(seed)
    sizes = [pages for pages in _PAGES[:3] if pages <= max(1, master.pages // 8)] or [1]
    found = [_sweep(master, (pages, ahead), seconds / len(sizes), draw) for pages in sizes]
    return _rising([size for size, _ in found], [spent for _, spent in found])


def _sweep(
    master: FileMaster, how: tuple[int, int], seconds: float, draw: np.random.Generator
) -> tuple[float, float]:
    pages, ahead = how
    reader = master.reader((1 + ahead) * pages, pages)
    spent: list[float] = []
    firsts = np.arange(0, max(1, master.statistics.parts - pages), pages)
    until = time.perf_counter() + seconds
    while len(spent) < 2 or time.perf_counter() < until:
        chosen = np.sort(draw.choice(firsts, min(len(firsts), _RUNS), replace=False))
        start = time.perf_counter()
        count = sum(1 for _ in reader.sweep([range(s, s + pages) for s in chosen.tolist()]))
        spent.append((time.perf_counter() - start) / count)
    return reader.bytes_read / reader.reads, _mean(spent)


def median_curve(curves: Sequence[Curve]) -> Curve:
    """Give the middle of curves through points of much the same sizes."""
    sizes = np.median([curve.at for curve in curves], axis=0)
    return _rising(sizes.tolist(), np.median([curve.value for curve in curves], axis=0).tolist())


def _mean(spent: list[float]) -> float:
    """Give the mean, but for the one in twenty that took longest: hiccups of a shared machine."""
    return float(np.mean(np.sort(spent)[: max(1, int(len(spent) * 0.95))]))


def _rising(sizes: list[float], seconds: list[float]) -> Curve:
    """Give a curve through the points; a larger read that seemed quicker is noise."""
    return Curve(tuple(sizes), tuple(np.maximum.accumulate(seconds).tolist()))
