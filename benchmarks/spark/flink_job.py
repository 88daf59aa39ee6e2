"""Runs a job of Flink; a script for Flink's own environment, which has nothing of this package.

On standard input it takes, as JSON, ``settings``, ``statements`` that define tables, the ``insert``
that is the job, the ``parallelism``, the count of rows ``until`` which it runs (none: to its end),
and the file for its ``answer``: samples of seconds, rows that the join has taken, hits and misses
of its cache, and rows in the cache.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

_EVERY = 0.5  # seconds from sample to sample
_BEANS = "*.{}:operator_name=LookupJoin*,*"


class Counters:
    """The join's own metrics, read in the JVM that runs it: exact at the moment they are read."""

    def __init__(self, jvm: Any, tasks: int) -> None:
        self._name = jvm.javax.management.ObjectName
        self._server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        self._tasks = tasks
        self._beans: dict[str, list[Any]] = {}

    def read(self) -> list[int] | None:
        """Return rows, hits, misses, cached rows; nothing before all tasks have begun."""
        if not self._beans:
            self._beans = self._find()
        if not self._beans:
            return None
        # The tasks share one cache, which tells each of them everything.
        return [
            sum(self._values("numRecordsIn", "Count")),
            max(self._values("hitCount", "Count")),
            max(self._values("missCount", "Count")),
            max(self._values("numCachedRecords", "Value")),
        ]

    def _find(self) -> dict[str, list[Any]]:
        kinds = ("numRecordsIn", "hitCount", "missCount", "numCachedRecords")
        found = {
            kind: list(self._server.queryNames(self._name(_BEANS.format(kind)), None))
            for kind in kinds
        }
        return found if all(len(beans) == self._tasks for beans in found.values()) else {}

    def _values(self, kind: str, attribute: str) -> list[int]:
        return [self._server.getAttribute(bean, attribute) for bean in self._beans[kind]]


def main() -> None:
    """Do what standard input asks for."""
    job = json.load(sys.stdin)
    insert = _insert(job)
    samples = _watch(insert, job) if job["until"] else []
    if not job["until"]:
        insert.wait()
    Path(job["answer"]).write_text(json.dumps(samples))


def _insert(job: dict[str, Any]) -> Any:
    """Start the job."""
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import (  # type: ignore[import-not-found]
        EnvironmentSettings,
        TableEnvironment,
    )

    configuration = Configuration()
    for name, value in job["settings"].items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(settings.with_configuration(configuration).build())
    for statement in job["statements"]:
        tables.execute_sql(statement)
    return tables.execute_sql(job["insert"])


def _watch(insert: Any, job: dict[str, Any]) -> list[list[float]]:
    """Sample until enough rows are taken, then cancel the job; or until it ends by itself."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped, unused-ignore]
    from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found]

    counters, client = Counters(get_gateway().jvm, job["parallelism"]), insert.get_job_client()
    ended = client.get_job_execution_result()
    samples: list[list[float]] = []
    while not ended.done():
        try:
            read = counters.read()
        except Py4JError:  # a task has ended, and with it its metrics
            break
        if read:
            samples.append([time.perf_counter(), *read])
            if read[0] > job["until"]:
                client.cancel().result()
                return samples
        time.sleep(_EVERY)
    ended.result()
    return samples


if __name__ == "__main__":
    main()
