"""All that is compared on Spark, by name."""

from semistream.spark.bench.systems.base import Setting, System
from semistream.spark.bench.systems.by_keys import BY_KEYS
from semistream.spark.bench.systems.in_worker import IN_WORKER
from semistream.spark.bench.systems.ours import OURS
from semistream.spark.bench.systems.spark_joins import SPARK

__all__ = ["SYSTEMS", "Setting", "System"]

SYSTEMS: dict[str, System] = {**OURS, **SPARK, **BY_KEYS, **IN_WORKER}
