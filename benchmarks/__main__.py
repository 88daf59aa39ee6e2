"""The command ``python -m benchmarks``, from the root of a clone."""

from __future__ import annotations

import sys

from benchmarks.engine.build import BUILD
from benchmarks.engine.drift import DRIFT
from benchmarks.engine.growth import GROWTH
from benchmarks.engine.matrix import MATRIX
from benchmarks.engine.plan import PLAN
from benchmarks.engine.stores import STORES
from benchmarks.harness.command import command_line

try:
    from benchmarks.spark.confined.measure import CONFINED
    from benchmarks.spark.live import LIVE
    from benchmarks.spark.peers.measure import PEERS
    from benchmarks.spark.tasks import SPARK
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    sys.exit("python -m benchmarks needs pyspark: pip install 'semistream[spark]'")

BENCHMARKS = (MATRIX, BUILD, STORES, CONFINED, GROWTH, DRIFT, PLAN, SPARK, LIVE, PEERS)
app = command_line(BENCHMARKS)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
