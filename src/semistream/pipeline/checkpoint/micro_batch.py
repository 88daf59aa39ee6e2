"""What Spark logs of a micro-batch before it begins; a replay reads the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from semistream.errors import SemistreamError
from semistream.pipeline.checkpoint.write_once import RemoteFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchPlan", "MicroBatch", "read_plan"]


class BatchPlan(NamedTuple):
    """A micro-batch as Spark's log has it."""

    millis: int
    """When it was planned, in milliseconds since 1970."""
    offsets: str = ""
    """A digest of its offsets; another one for a batch that was planned anew."""

    @classmethod
    def parse(cls, text: str) -> BatchPlan:
        """Read a file of the log: a version, the batch's metadata, the offsets.

        Examples
        --------
        >>> BatchPlan.parse('v1' + chr(10) + '{"batchTimestampMs":1794825482700}' + chr(10) + '{}')
        BatchPlan(millis=1794825482700, offsets='196fe3edfa937c58')
        """
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(int(json.loads(text.splitlines()[1])["batchTimestampMs"]), digest)


def read_plan(spark: SparkSession, checkpoint: str, number: int) -> BatchPlan:
    """Read when a batch was planned, and with which offsets, from its checkpoint's log."""
    text = RemoteFiles(f"{checkpoint}/offsets", spark).read(str(number))
    if text is None:
        msg = f"Spark's log {checkpoint}/offsets has no batch {number}, though it is at work on it"
        raise SemistreamError(msg)
    return BatchPlan.parse(text)


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: what it writes, it writes under its number, and so once."""

    query: str
    """Spark's id of it."""
    number: int
    millis: int = 0
    """The batch's own time, in milliseconds since 1970."""
    offsets: str = ""
    """A digest of the offsets that it reads."""

    @classmethod
    def of(cls, batch: DataFrame, number: int, plan: BatchPlan) -> MicroBatch:
        """Return the micro-batch in whose ``foreachBatch`` this is called."""
        context = batch.sparkSession.sparkContext
        return cls(context.getLocalProperty("sql.streaming.queryId") or "", number, *plan)
