"""All that is compared on Spark, by name."""

from benchmarks.spark.systems.base import Setting, System
from benchmarks.spark.systems.by_keys import BY_KEYS
from benchmarks.spark.systems.in_worker import IN_WORKER
from benchmarks.spark.systems.ours import OURS
from benchmarks.spark.systems.spark_joins import SPARK

__all__ = ["SYSTEMS", "Setting", "System"]

SYSTEMS: dict[str, System] = {**OURS, **SPARK, **BY_KEYS, **IN_WORKER}
