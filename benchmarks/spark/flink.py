"""Flink's lookup join from PostgreSQL, with its own cache, set beside ours.

It runs in a Python environment of its own, for its package asks for other versions than ours.

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
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.memory import Footprint
from benchmarks.spark.data import KEY
from benchmarks.spark.database import Store
from semistream.errors import OptionError, SemistreamError
from semistream.spark.cluster.java import find_java
from semistream.spark.cluster.maven import Artifact, download

VERSION = "2.3.0"
CONNECTOR = "4.0.0-2.0"
_FLINK, _HADOOP = "org.apache.flink", "org.apache.hadoop"
_JARS = (
    Artifact(_FLINK, "flink-connector-jdbc-core", CONNECTOR),
    Artifact(_FLINK, "flink-connector-jdbc-postgres", CONNECTOR),
    Artifact("org.postgresql", "postgresql", "42.7.14"),
    Artifact(_FLINK, "flink-sql-parquet", VERSION),
    Artifact(_HADOOP, "hadoop-client-api", "3.4.1"),  # Flink's Parquet is built on Hadoop's classes
    Artifact(_HADOOP, "hadoop-client-runtime", "3.4.1"),
    Artifact(_FLINK, "flink-metrics-jmx", VERSION),
)
_INSTALLING = 900.0  # seconds that pip may take: it brings 500 MB


@dataclass(frozen=True)
class Flink:
    """What a job of Flink is started with."""

    python: Path
    """Of the environment that has PyFlink."""
    jars: tuple[Path, ...]
    java: Path
    """The home of the Java that it runs on."""


def prepare(folder: Path, say: Callable[[str], None]) -> Flink | str:
    """Bring Flink into a folder, unless it is there; give it, or why it cannot be had."""
    folder = folder.absolute()
    try:
        java = find_java().home
        jars = tuple(download(jar, folder / "jars") for jar in _JARS)
        return Flink(_install(folder / f"python-{VERSION}", say), jars, java)
    except subprocess.CalledProcessError as error:
        return f"Flink {VERSION} cannot be installed: {_last_line(error.stderr)}"
    except (SemistreamError, OSError, subprocess.TimeoutExpired) as error:
        return f"Flink {VERSION} cannot be had: {error}"


def _install(folder: Path, say: Callable[[str], None]) -> Path:
    """Make a virtual environment with PyFlink; give its Python."""
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        say(f"installing Flink {VERSION}, about 500 MB")
        _checked([sys.executable, "-m", "venv", "--clear", str(folder)])
        _checked([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"])
        whole.touch()
    return python


def _checked(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=_INSTALLING, check=True)  # noqa: S603


def _last_line(text: str) -> str:
    r"""Return what a program said last, where it mostly says what went wrong.

    Examples
    --------
    >>> _last_line("WARNING: slow\nERROR: No matching distribution found\n\n")
    'ERROR: No matching distribution found'
    """
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")


# -- its tables and its query -----------------------------------------------------------------

_TYPES = {"int64": "BIGINT", "int32": "INT", "double": "DOUBLE", "string": "STRING"}
_SALES = f"{KEY} BIGINT, sale BIGINT, quantity INT"


@dataclass(frozen=True)
class FlinkSetting:
    """What Flink joins with, and how."""

    store: Store
    """On PostgreSQL."""
    columns: pa.Schema
    """Of the table without its key."""
    cached: int
    """Rows in its cache."""
    how: Literal["left", "inner"] = "left"
    parallelism: int = 2
    heap: str = "1g"


def tables(at: FlinkSetting, source: Path, target: Path | None) -> list[str]:
    """Define the stream, the table, and where joined rows go: into a folder, or nowhere."""
    address, properties = at.store.jdbc
    products = {
        "connector": "jdbc",
        "url": address,
        "table-name": at.store.table,
        "username": properties["user"],
        "password": properties["password"],
        "lookup.cache": "PARTIAL",
        "lookup.partial-cache.max-rows": str(at.cached),
    }
    sink = _files(target) if target else {"connector": "blackhole"}
    added = ", ".join(f"`{field.name}` {_TYPES[str(field.type)]}" for field in at.columns)
    return [
        _table("sales", f"{_SALES}, proc_time AS PROCTIME()", _files(source)),
        _table("products", f"{KEY} BIGINT, {added}, PRIMARY KEY ({KEY}) NOT ENFORCED", products),
        _table("joined", f"{_SALES}, {added}", sink),
    ]


def _files(folder: Path) -> dict[str, str]:
    return {"connector": "filesystem", "path": folder.absolute().as_uri(), "format": "parquet"}


def _table(name: str, columns: str, options: dict[str, str]) -> str:
    """Define a table.

    Examples
    --------
    >>> _table("joined", "sale BIGINT", {"connector": "it's"})
    "CREATE TABLE joined (sale BIGINT) WITH ('connector' = 'it''s')"
    """
    quoted = {key: value.replace("'", "''") for key, value in options.items()}
    given = ", ".join(f"'{key}' = '{value}'" for key, value in quoted.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({given})"


def insert(at: FlinkSetting) -> str:
    """Return the join, which is the job."""
    added = ", ".join(f"p.`{name}`" for name in at.columns.names)
    return (
        f"INSERT INTO joined SELECT s.{KEY}, s.sale, s.quantity, {added} FROM sales AS s "  # noqa: S608 - ours
        f"{at.how.upper()} JOIN products FOR SYSTEM_TIME AS OF s.proc_time AS p "
        f"ON s.{KEY} = p.{KEY}"
    )


# -- a job ------------------------------------------------------------------------------------

_JOB = Path(__file__).with_name("flink_job.py")
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
