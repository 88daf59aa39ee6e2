"""What became of the rows of a quarantine that was brought back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it

from semistream.missing import MATCHED
from semistream.pipeline.late.split import REASON, ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DROPPED", "Replayed"]

DROPPED = "dropped"
"""The reason of a row that leaves the quarantine, and does not reach the sink."""


@dataclass(frozen=True)
class Replayed:
    """What became of the rows of a quarantine."""

    tried: int = 0
    """Rows that were brought to the join again."""
    matched: int = 0
    """Those that left for the sink."""
    dropped: int = 0
    """Those that other enrichments of the pipeline leave out."""
    left: dict[str, int] = field(default_factory=dict)
    """Those that stay, by reason."""
    written: int = 0
    """Rows that went to the sink: more than matched where a master has several rows a key."""
    finished: int = 0
    """Rows of an earlier replay that was cut off, and was brought to its end first."""
    others: int = 0
    """Rows that other queries have put there, and that were left alone."""

    def __str__(self) -> str:
        stay = ", ".join(f"{count:,} {reason}" for reason, count in self.left.items())
        told = f"{self.tried:,} rows tried, {self.matched:,} matched and written"
        told += f", {self.dropped:,} dropped" if self.dropped else ""
        told += f", {sum(self.left.values()):,} stay ({stay})" if self.left else ", none stays"
        told += f"; {self.others:,} of other queries left alone" if self.others else ""
        earlier = f"finished an earlier replay of {self.finished:,} rows; " if self.finished else ""
        return earlier + told

    @classmethod
    def of(cls, held: DataFrame) -> Replayed:
        """Count what was found: rows by their reason, which is null where they matched."""
        groups = held.groupBy(F.coalesce(REASON, F.lit(MATCHED)).alias("reason")).agg(
            F.countDistinct(ROW).alias("rows"), F.count(F.lit(1)).alias("written")
        )
        found = {row["reason"]: row for row in groups.collect()}
        counts = {name: row["rows"] for name, row in found.items()}
        matched, dropped = counts.pop(MATCHED, 0), counts.pop(DROPPED, 0)
        return cls(
            tried=matched + dropped + sum(counts.values()),
            matched=matched,
            dropped=dropped,
            left=counts,
            written=found[MATCHED]["written"] if matched else 0,
        )
