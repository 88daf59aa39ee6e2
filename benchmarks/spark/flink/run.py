"""Flink's lookup join from PostgreSQL, with its own cache, set beside ours.

What is fair to it. Flink runs in one JVM (its MiniCluster), as Spark does in local mode, on as many
tasks as there are cores; both tasks share one cache of so many rows, for they are in one JVM.
Objects are reused, cached rows never expire, no checkpoints are made, rows go to the sink
``blackhole`` in the task that joins them. The connector asks for one key at a time and waits: it
has no asynchronous look-up. Only rows after a warm-up are counted, while all tasks are busy:
neither the start of the JVM and the job, nor the filling of the cache, nor the end, when some tasks
have nothing left to do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness.memory import Footprint
from benchmarks.spark.flink.setup import Flink
from benchmarks.spark.flink.sql import FlinkSetting, insert, tables
from semistream.errors import OptionError, SemistreamError

_JOB = Path(__file__).with_name("job.py")
_SETTINGS = {
    "pipeline.object-reuse": "true",
    "rest.port": "0",  # any that is free
    "rest.bind-port": "0",
    "metrics.reporters": "jmx",
    "metrics.reporter.jmx.factory.class": "org.apache.flink.metrics.jmx.JMXReporterFactory",
}
# Py4J calls the platform's own server of metrics, whose class Java does not show to all.
_METRICS = "--add-exports=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED"


class FlinkError(SemistreamError):
    """A job of Flink failed, took too long, or was over too soon to be measured."""


@dataclass(frozen=True)
class FlinkRun:
    """What was measured, of the rows that are counted."""

    rows: int
    seconds: float
    hits: float
    """The share of rows found in the cache."""
    cached: int
    """Rows in the cache as counting begins: it is warm if it is full."""
    peak: int
    """Bytes that all processes of the job held, at most, from its start to its end."""
    samples: tuple[tuple[float, int], ...]
    """Seconds and rows since counting began."""


def time_flink(
    flink: Flink, at: FlinkSetting, files: Sequence[Path], warm: int, limit: float = 240.0
) -> FlinkRun:
    """Join the rows of Parquet files, and give what those after the first ``warm`` rows took.

    The last rows, as many as there are in a file for each task, are read but not counted: until
    then there is a file for every task, so all are busy.

    Raises
    ------
    OptionError
        There are not more rows than those that are not counted.
    FlinkError
        The job failed, or was not through in so many seconds.
    """
    until = _until(files, at.parallelism)
    if until <= warm:
        raise OptionError(f"no rows are left to count: {until:,} of the stream, {warm:,} to warm")
    samples, peak = _run(flink, at, files, limit, until=until)
    return _measured(samples, peak, warm, until)


def join_by_flink(
    flink: Flink, at: FlinkSetting, files: Sequence[Path], target: Path, limit: float = 240.0
) -> Path:
    """Write the joined rows into a folder, as Parquet: to compare them with others' rows."""
    _run(flink, at, files, limit, target=target)
    return target


def _until(files: Iterable[Path], tasks: int) -> int:
    sizes: list[int] = [pq.read_metadata(file).num_rows for file in files]
    return sum(sizes) - tasks * max(sizes, default=0)


def _measured(samples: Sequence[Sequence[float]], peak: int, warm: int, until: int) -> FlinkRun:
    """Return what lies between the first and the last sample at which rows count.

    Examples
    --------
    >>> samples = [(1.0, 80, 0, 80, 9), (2.0, 100, 10, 90, 9), (4.0, 300, 160, 140, 9)]
    >>> run = _measured(samples, 0, warm=90, until=350)
    >>> run.rows, run.seconds, run.hits
    (200, 2.0, 0.75)
    """
    counted = [sample for sample in samples if warm <= sample[1] <= until]
    if len(counted) < 2 or counted[0][1] == counted[-1][1]:
        raise FlinkError(f"Flink was too fast to see rows {warm:,} to {until:,}; give it more")
    start, first, hit, missed, cached = counted[0]
    end, last, hit_by_end, missed_by_end, _ = counted[-1]
    asked = hit_by_end - hit + missed_by_end - missed
    return FlinkRun(
        rows=int(last - first),
        seconds=end - start,
        hits=(hit_by_end - hit) / asked,
        cached=int(cached),
        peak=peak,
        samples=tuple((now - start, int(rows - first)) for now, rows, *_ in counted),
    )


def _run(
    flink: Flink,
    at: FlinkSetting,
    files: Iterable[Path],
    limit: float,
    *,
    until: int | None = None,
    target: Path | None = None,
) -> tuple[list[list[float]], int]:
    """Run a job; give its samples, and the most bytes that were resident."""
    with tempfile.TemporaryDirectory(prefix="semistream-flink-") as scratch:
        place = Path(scratch)
        source, answer = place / "files", place / "answer.json"
        source.mkdir()
        for file in files:
            (source / file.name).symlink_to(file.absolute())
        job = {
            "settings": _SETTINGS | {"parallelism.default": str(at.parallelism)},
            "statements": tables(at, source, target),
            "insert": insert(at),
            "parallelism": at.parallelism,
            "until": until,
            "answer": str(answer),
        }
        peak = _process(flink, at, job, place, limit)
        return json.loads(answer.read_text()), peak


def _process(flink: Flink, at: FlinkSetting, job: dict[str, Any], place: Path, limit: float) -> int:
    """Run the script in a process group of its own, so that its JVM ends with it."""
    said = place / "said.txt"
    with said.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603
            [flink.python, "-P", _JOB],  # -P: modules beside the script are not Flink's
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=_environment(flink, at, place),
            start_new_session=True,
        )
    try:
        with Footprint(process.pid, itself=True, every=2.0) as footprint:
            # Not among the arguments, which others may list: there is a password in it.
            process.communicate(json.dumps(job).encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        raise FlinkError(f"Flink's job was not through in {limit:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise FlinkError(f"Flink's job failed: {_reason(said.read_text(errors='replace'))}")
    return footprint.most["all"]


def _reason(said: str) -> str:
    r"""Return the cause that Java names last, or else what was said last.

    Examples
    --------
    >>> _reason("Error: o8\nCaused by: java.sql.SQLException: no table\n\tat java.base\n")
    'java.sql.SQLException: no table'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or ["it said nothing"])[-1]


def _environment(flink: Flink, at: FlinkSetting, place: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "JAVA_HOME": str(flink.java),
        "JVM_ARGS": f"-Xmx{at.heap} {_METRICS}",
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, flink.jars)),
        "FLINK_LOG_DIR": str(place),
        "ROOT_LOG_LEVEL": "WARN",
    }
