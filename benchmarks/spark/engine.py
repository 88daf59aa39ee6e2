"""Processes with a Spark session each: one that runs out of memory takes no other with it."""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from benchmarks.harness.cgroup import MemoryGroup
from benchmarks.harness.processes import Child, ChildError
from semistream.spark.cluster.session import session

EngineError = ChildError
_RAISED = re.compile(r"[\w.]+(Error|Exception): ")
_CONFIG = {
    # Functions that run in Python workers are found there by the names of their modules.
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",  # a join that runs out of memory says so in the record
}


class Caller(Protocol):
    """Calls functions where there is a Spark session."""

    def call(self, where: str, function: Callable[..., Any], *args: object) -> Any:
        """Return what a function returns that runs in the process with this name."""


class Engines:
    """Processes by name, started when they are first asked.

    Parameters
    ----------
    masters
        For each name the Spark master.
    config
        Spark settings, for all of them.
    longest
        Seconds without an answer after which a process is given up.
    special
        For some names, settings of their own.
    group
        A memory cgroup for all of them.
    """

    def __init__(
        self,
        masters: dict[str, str],
        config: dict[str, str],
        longest: float = 240.0,
        special: dict[str, dict[str, str]] | None = None,
        group: MemoryGroup | None = None,
    ) -> None:
        self._masters, self._config, self._longest = masters, _CONFIG | config, longest
        self._special, self._group = special or {}, group
        self._running: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; one that is asked again is started anew."""
        while self._running:
            self._running.popitem()[1].close()

    def pid(self, where: str) -> int:
        """Return the process with this name, above its JVM and its workers."""
        return self._child(where).pid

    def call(self, where: str, function: Callable[..., Any], *args: object) -> Any:
        """Return what a function returns; after an error the process is started anew."""
        config = self._config | self._special.get(where, {})
        try:
            return self._child(where).call(_call, self._masters[where], config, function, args)
        except EngineError:
            self._running.pop(where).close()
            raise

    def _child(self, where: str) -> Child:
        if where not in self._running:
            self._running[where] = Child(self._longest, _brief, self._group)
        return self._running[where]


def _call(
    master: str, config: dict[str, str], function: Callable[..., Any], args: tuple[object, ...]
) -> Any:
    """Call a function where there is a session, which ends with the process."""
    spark = session("semistream-bench", master=master, config=config)
    atexit.unregister(spark.stop)
    atexit.register(spark.stop)
    return function(*args)


def _brief(error: Exception) -> str:
    r"""Return what an error says, without Java's stack.

    Examples
    --------
    >>> _brief(ValueError("no\n  at java.lang"))
    'ValueError: no'
    """
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("An error occurred while calling")]
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and "Traceback" in str(error):  # in a worker: Spark's own first line says nothing
        return raised[-1][:300]
    first = re.sub(r"^\[STREAM_FAILED\].*?exception: ", "", said[0] if said else "")
    return f"{type(error).__name__}: {first}"[:300]
