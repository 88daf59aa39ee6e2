"""What enrichments do, micro-batch by micro-batch: in the log, and for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.spark.cluster import context_of
from semistream.spark.reports import Reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from semistream.spark.worker import Channel

__all__ = ["reports_of"]

_CHANNELS: dict[str, Channel] = {}


def reports_of(spark: SparkSession) -> Channel:
    """Give the channel on which tasks report to this driver; over Spark Connect there is none."""
    context = context_of(spark)
    if context is None:
        return None
    key = str(context.applicationId)
    if key not in _CHANNELS:
        _CHANNELS[key] = context.accumulator({}, Reports())
    return _CHANNELS[key]
