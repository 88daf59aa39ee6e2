"""The command ``python -m benchmarks``, from the root of a clone."""

from __future__ import annotations

from benchmarks.engine.build import BUILD
from benchmarks.engine.confined import CONFINED
from benchmarks.engine.drift import DRIFT
from benchmarks.engine.growth import GROWTH
from benchmarks.engine.matrix import MATRIX
from benchmarks.engine.stores import STORES
from benchmarks.harness.command import command_line

BENCHMARKS = (MATRIX, BUILD, STORES, CONFINED, GROWTH, DRIFT)
app = command_line(BENCHMARKS)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
