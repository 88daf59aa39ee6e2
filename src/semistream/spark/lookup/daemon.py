"""The process that Spark forks its Python workers from, with what an enrichment imports loaded.

Spark starts it in place of its own where `spark.cluster.session` says so. A worker then begins
without a second of imports, and the workers of a host share the memory that these take: a fork
copies a page when one of them writes to it, not before.
"""

from __future__ import annotations

import gc

import pandas as pd  # noqa: F401 - Spark's worker loads it for any function on Arrow's columns
from pyspark.daemon import manager

import semistream.algorithms.on_host  # what joins of tasks are planned by
import semistream.join
import semistream.spark.lookup.worker  # noqa: F401 - what a task runs

__all__: list[str] = []

if __name__ == "__main__":
    gc.freeze()  # or the collector's marks would be written into every page
    manager()  # type: ignore[no-untyped-call]
