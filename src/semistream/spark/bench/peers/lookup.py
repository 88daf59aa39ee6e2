"""Enrichment beside Flink's lookup join, both with the same share of the rows in memory."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from semistream.spark.bench.data import Products, Sales
from semistream.spark.bench.flink.run import FlinkSetting, time_flink
from semistream.spark.bench.flink.setup import VERSION, Flink
from semistream.spark.bench.flink.setup import prepare as prepare_flink
from semistream.spark.bench.grid import DROPPED
from semistream.spark.bench.peers.contest import prepare
from semistream.spark.bench.queries import Batches, Enough, time_batches
from semistream.spark.bench.systems import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.spark.bench.engine import Caller
    from semistream.spark.bench.peers.grid import PeersGrid

__all__ = ["measure_flink"]

_OURS = ("enrich", "enrich-database")
_NOTE = (
    "Flink asks PostgreSQL a key at a time, from two tasks with one cache; its start, its warm-up "
    "and its end are not counted. enrich is timed from trigger to commit, in batches of {rows:,}; "
    "from PostgreSQL with a cache of about the same rows. The server shares the two cores"
)


def measure_flink(
    grid: PeersGrid, folder: Path, engines: Caller, url: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Give rates of both, in turn, left and inner."""
    flink = prepare_flink(folder / "flink", say) if url else "no database was given: --url"
    if isinstance(flink, str):
        return {"failed": flink}
    products = Products(min(grid.rows), folder)
    cached, batch_rows = int(grid.share * products.rows), max(grid.batch_rows)
    sales = Sales(products.keys, 1.0, batch_rows, grid.batches_of(batch_rows), absent=grid.absent)
    batches = Batches(sales.prepare(folder), sales.files, sales.batches)
    about = {"rows": products.rows, "cached": cached, "note": _NOTE.format(rows=batch_rows)}
    at = {how: Setting.of(products, how, grid.share, url) for how in grid.hows}
    small = _small(grid, products, folder)
    found = [
        {"how": how, "rates": dict(_rates(grid, engines, flink, at[how], (batches, small), say))}
        for how in grid.hows
    ]
    return about | {"version": VERSION, "cells": found}


def _small(grid: PeersGrid, products: Products, folder: Path) -> Batches:
    """Give the stream of Flink, in files that are small, for each is read by one task."""
    rows = grid.flink_rows // 40
    sales = Sales(products.keys, 1.0, 2 * rows, 60, absent=grid.absent)
    return Batches(sales.prepare(folder), sales.files, sales.batches)


def _rates(
    grid: PeersGrid,
    engines: Caller,
    flink: Flink,
    at: Setting,
    streams: tuple[Batches, Batches],
    say: Callable[[str], None],
) -> Iterator[tuple[str, list[float]]]:
    """Give the rates of every round, a system at a time, though they were measured in turn."""
    found: dict[str, list[float]] = {}
    for name in _OURS:
        engines.call("main", prepare, name, at)
    for _ in range(grid.rounds):
        say(f"Flink, {at.how}")
        run = time_flink(flink, _flink_setting(grid, at), streams[1].paths, warm=grid.flink_rows)
        found.setdefault("flink", []).append(run.rows / run.seconds)
        for name in _OURS:
            say(f"beside Flink: {name}, {at.how}")
            found.setdefault(name, []).append(_ours(grid, engines, name, at, streams[0]))
    yield from found.items()


def _flink_setting(grid: PeersGrid, at: Setting) -> FlinkSetting:
    columns, cached = at.products.schema.remove(0), int(grid.share * at.products.rows)
    return FlinkSetting(at.store, columns, cached, at.how)  # type: ignore[arg-type]  # of two


def _ours(grid: PeersGrid, engines: Caller, name: str, at: Setting, batches: Batches) -> float:
    enough = Enough(DROPPED, grid.seconds, least=2)
    took: list[int] = engines.call("main", time_batches, name, at, batches, grid.limit, enough)
    rows = max(grid.batch_rows)
    return 1000 * rows / statistics.median(took[DROPPED:] or took[-1:])
