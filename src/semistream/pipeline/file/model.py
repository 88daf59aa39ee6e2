"""What a pipeline is: a source, enrichments, column choices, a sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semistream.pipeline.file.problems import Mark

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from semistream.pipeline.file.ends import Sink, Source
    from semistream.pipeline.file.sections import Columns, Enrichment, Waiting

__all__ = ["NOW", "Pipeline"]

NOW = "available now"
"""The trigger that ends when what is there is processed."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as its file describes it."""

    path: Path
    name: str
    source: Source
    enrich: tuple[Enrichment, ...]
    columns: Columns
    sink: Sink
    trigger: str | None
    checkpoint: str
    spark: Mapping[str, str]
    quarantine: str
    """Where rows without a master row go, a Delta table, if an enrichment wants it."""
    waiting: Waiting
    """Where rows wait whose master row may still come, if an enrichment wants it."""
    marks: Mapping[str, Mark] = field(repr=False, compare=False)
    """Where each value is in the file, by its name as ``enrich[0].on``."""

    @property
    def splits(self) -> bool:
        """Whether rows without a master row go elsewhere than to the sink."""
        return any(step.splits for step in self.enrich)

    @property
    def waits(self) -> bool:
        """Whether rows without a master row wait for it."""
        return any(step.on_missing == "wait" for step in self.enrich)

    @property
    def infers(self) -> bool:
        """Whether keys without a master row become members of a dimension."""
        return any(step.surrogate for step in self.enrich)

    @property
    def by_batch(self) -> bool:
        """Whether more is written than the sink, batch by batch."""
        return self.splits or self.infers

    def keeps_single(self, number: int) -> bool:
        """Whether a row must leave an enrichment as one, for another one parts rows."""
        parting = {i for i, step in enumerate(self.enrich) if step.splits} - {number}
        return bool(parting) and self.enrich[number].how in {"inner", "left"}

    def mark(self, where: str) -> Mark:
        """Give the place of a value, or of what is around it if it is not given."""
        while where and where not in self.marks:
            where = where[: max(where.rfind("."), where.rfind("["), 0)]
        return self.marks.get(where, Mark())
