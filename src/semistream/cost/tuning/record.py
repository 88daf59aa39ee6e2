"""The record of a tuning: what is tuned, on which machine, and how it is written as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistream.cost.tuning.measure import Sampling
from semistream.system.machine import describe

if TYPE_CHECKING:
    from semistream.cost.profile import Profile

    Record = dict[str, Any]

__all__ = ["TuningGrid", "begin", "compact"]

_SAMPLING = Sampling()


@dataclass(frozen=True)
class TuningGrid:
    """What is tuned, by the model and by measurement."""

    algorithms: tuple[str, ...] = (
        "meshjoin",
        "cachejoin",
        "tuned-x-hybridjoin",
        "optimised-x-hybridjoin",
    )
    """Of these the knobs are tuned."""
    paged: tuple[str, ...] = ("hybridjoin", "adaptive")
    """Of these the page size of the store is."""
    rows: int = 2_000_000
    shares: tuple[float, ...] = (0.01, 0.05, 0.10, 0.20)
    exponents: tuple[float, ...] = (0.5, 1.0)
    read: str = "direct"
    page_bytes: int = 128 << 10
    page_sizes: tuple[int, ...] = (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)
    """Masters are built with each of them."""
    points: int = 5
    """Values of a knob that are measured, beside the model's and the algorithm's own; of several
    knobs, fewer of each."""
    sampling: Sampling = _SAMPLING
    read_seconds: float = 0.8
    """How long reads are measured before each setting, as the planner does."""


def begin(grid: Record, profile: Profile) -> Record:
    """Make a record without cells."""
    return {
        "kind": "tuning",
        "what": "knobs tuned by the model and by measurement, stream rows a second, one thread",
        "machine": describe(),
        "grid": grid,
        "profile": {"machine": dict(profile.machine), "costs": profile.costs.as_dict()},
        "cells": [],
    }


def compact(record: dict[str, Any]) -> str:
    """Write a record as JSON with one line for each entry of a list of objects.

    Examples
    --------
    >>> print(compact({"what": "rates", "cells": [{"a": 1}, {"a": 2}]}))
    {
     "what": "rates",
     "cells": [
      {"a":1},
      {"a":2}
     ]
    }
    """
    parts = [f" {json.dumps(name)}: {_value(value)}" for name, value in record.items()]
    return "{\n" + ",\n".join(parts) + "\n}"


def _value(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        lines = (f"  {json.dumps(entry, separators=(',', ':'))}" for entry in value)
        return "[\n" + ",\n".join(lines) + "\n ]"
    return json.dumps(value)
