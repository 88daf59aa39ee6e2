"""What a join adds to a micro-batch of a single row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.spark.data import Products, Sales
from benchmarks.spark.queries import Batches, time_batches
from benchmarks.spark.systems import Setting
from benchmarks.spark.systems.ours import ENRICH

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.spark.engine import Caller
    from benchmarks.spark.grid import SparkGrid

__all__ = ["measure_single"]


def measure_single(grid: SparkGrid, folder: Path, engines: Caller) -> dict[str, Any]:
    """Time batches of one row with the join and without it, in turn, at the largest R."""
    rows = max(grid.rows)
    at = replace(Setting.of(Products(rows, folder), "left", grid.share), options={"check": False})
    sales = Sales(rows, grid.exponent, 1, grid.single_batches, files=1)
    batches = Batches(sales.prepare(folder), sales.files, sales.batches)
    took: dict[str, list[list[int]]] = {ENRICH: [], "none": []}
    for number in range(grid.single_rounds):
        for system in sorted(took, reverse=number % 2 == 1):
            took[system].append(engines.call("main", time_batches, system, at, batches, grid.limit))
    return {"rows": rows, "memory": at.memory, "milliseconds": took}
