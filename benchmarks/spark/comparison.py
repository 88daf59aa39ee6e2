"""The rows of all systems are compared with those of Spark's join, before any is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.spark.data import Batches, Products
from benchmarks.spark.engine import Caller, EngineError
from benchmarks.spark.queries import DifferentRowsError, fingerprint
from benchmarks.spark.systems import SYSTEMS, Setting

REFERENCE = "default"
"""All others must give the rows of Spark's own join."""
CHECKED_ABSENT = 0.1
"""The share of rows without a match in what is compared."""
_NOT_JOINS = ("none", "bound")


def prepare(system: str, at: Setting) -> str:
    """Make what a system needs; return why it cannot run, nothing if it can."""
    missing = SYSTEMS[system].missing(at)
    if not missing:
        SYSTEMS[system].prepare(at)
    return missing


@dataclass
class Comparison:
    """Systems that give the right rows; those that failed are not tried again."""

    say: Callable[[str], None]
    engines: Caller
    _failed: dict[tuple[str, Products, str], str] = field(default_factory=dict)
    _checked: set[tuple[str, Products, str]] = field(default_factory=set)

    def able(self, systems: Iterable[str], at: Setting) -> list[str]:
        """Return those of some systems that have not failed."""
        return [name for name in systems if not self.failure(name, at)]

    def failure(self, system: str, at: Setting) -> str:
        """Return why a system is left out for these products and this join, nothing if not."""
        return self._failed.get((system, at.products, at.how), "")

    def check(self, systems: Iterable[str], at: Setting, batches: Batches) -> None:
        """Prepare systems, and check that they give the rows of Spark's join; once each."""
        able = self.able(systems, at)
        new = [name for name in able if (name, at.products, at.how) not in self._checked]
        if not new:
            return
        self.say(f"R = {at.products.rows:,}, {at.how}: the same rows?")
        right, failure = self.called(REFERENCE, fingerprint, at, batches)
        if failure:
            self.say(f"{REFERENCE} gives no rows to compare with: {failure}")
        for system in new:
            about = system, at.products, at.how
            self._checked.add(about)
            failure = self._prepare(system, at)
            if not failure:
                rows, failure = self.called(system, fingerprint, at, batches)
            if failure:
                self._failed[about] = failure
            elif right is not None and rows != right and system not in _NOT_JOINS:
                msg = f"{system} and {REFERENCE} give different rows: {rows}, {right}, {at}"
                raise DifferentRowsError(msg)

    def _prepare(self, system: str, at: Setting) -> str:
        """Make what a system needs; return why it cannot run, nothing if it can."""
        if SYSTEMS[system].unique and at.products.duplicates > 1:
            return "it has one row a key"
        self.say(f"R = {at.products.rows:,}: {SYSTEMS[system].label}")
        try:
            return str(self.engines.call("main", prepare, system, at))
        except EngineError as error:
            return str(error)

    def called(self, system: str, function: Callable[..., Any], *args: object) -> tuple[Any, str]:
        """Call a function for a system; return what it returns, and why it failed if it did."""
        try:
            where = system if SYSTEMS[system].alone else "main"
            return self.engines.call(where, function, system, *args), ""
        except EngineError as error:
            return None, str(error)
