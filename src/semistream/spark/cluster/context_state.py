"""All that the driver remembers of a Spark context, in one object that goes with the context."""

from __future__ import annotations

import itertools
import os
import uuid
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semistream.master.snapshots import pins
from semistream.spark.cluster.executors import context_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    Attempt = tuple[str, str, str]
    Numbers = dict[str, itertools.count[int]]

__all__ = ["ContextState", "EnrichmentFacts", "state_of"]


@dataclass(frozen=True)
class EnrichmentFacts:
    """What metrics need to know of an enrichment."""

    how: str
    java_bytes: int | None
    """Bytes that the JVM holds of the master; None if look-ups are Python's."""
    budget: int


@dataclass(eq=False)
class ContextState:
    """The driver's memory of one Spark context; over Spark Connect, of one session."""

    channel: Any = None
    """The accumulator on which tasks report; made on first use."""
    listeners: weakref.WeakKeyDictionary[SparkSession, Any] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    enrichments: dict[str, EnrichmentFacts] = field(default_factory=dict)
    written: dict[tuple[str, int], dict[str, dict[str, int]]] = field(default_factory=dict)
    """(query, batch) → enrichment → what its writer did with rows, until the batch has ended."""
    has_classes: bool = False
    """Whether the JVM has loaded the Java classes."""
    holder: str = field(default_factory=lambda: f"{os.getpid()}-{uuid.uuid4().hex[:12]}")
    """Who holds snapshots of masters for DataFrames of this context."""
    holds: dict[tuple[str, str], float] = field(default_factory=dict)
    """(master, snapshot) → when a hold for a stream was last renewed."""
    masters: set[Path] = field(default_factory=set)
    """The folders in which this context holds snapshots."""
    _names: Numbers = field(default_factory=dict)
    _names_in_batch: dict[str, tuple[Attempt, Numbers]] = field(default_factory=dict)

    def unique_name(self, name: str, attempt: Attempt | None) -> str:
        """Return a name that no other enrichment of this context has.

        Enrichments that are made in a foreachBatch are the same in every batch, and keep their
        names: there names are counted anew in each attempt at a micro-batch.
        """
        numbers = self._names
        if attempt is not None:
            query = attempt[0]
            if self._names_in_batch.get(query, (None,))[0] != attempt:
                self._names_in_batch[query] = attempt, {}
            numbers = self._names_in_batch[query][1]
        number = next(numbers.setdefault(name, itertools.count(1)))
        return name if number == 1 else f"{name}_{number}"

    def release(self) -> None:
        """Release all snapshots that are held for this context."""
        while self.masters:
            pins.release(self.masters.pop(), self.holder)


_STATES: weakref.WeakKeyDictionary[Any, ContextState] = weakref.WeakKeyDictionary()


def state_of(spark: SparkSession) -> ContextState:
    """Return the state of a session's context, made on first use; drop that of stopped contexts."""
    owner = context_of(spark) or spark
    state = _STATES.get(owner)
    if state is None:
        for old in [each for each in _STATES if _is_stopped(each)]:
            _STATES.pop(old).release()
        state = _STATES.setdefault(owner, ContextState())
        weakref.finalize(owner, state.release)  # also when the process ends
    return state


def _is_stopped(owner: Any) -> bool:  # noqa: ANN401 - a SparkContext, or a session of Connect's
    stopped = getattr(owner, "is_stopped", None)
    return bool(getattr(owner, "_jsc", None) is None if stopped is None else stopped)
