"""Flink in an environment of its own, for its Python package asks for other versions than ours."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.errors import SemistreamError
from semistream.spark.cluster.java import find_java
from semistream.spark.cluster.maven import Artifact, download

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["CONNECTOR", "VERSION", "Flink", "prepare"]

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
_LONGEST = 900.0  # seconds that pip may take: it brings 500 MB


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
        return Flink(_environment(folder / f"python-{VERSION}", say), jars, java)
    except subprocess.CalledProcessError as error:
        return f"Flink {VERSION} cannot be installed: {_last_line(error.stderr)}"
    except (SemistreamError, OSError, subprocess.TimeoutExpired) as error:
        return f"Flink {VERSION} cannot be had: {error}"


def _environment(folder: Path, say: Callable[[str], None]) -> Path:
    """Make a virtual environment with PyFlink; give its Python."""
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        say(f"installing Flink {VERSION}, about 500 MB")
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"])
        whole.touch()
    return python


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=True)  # noqa: S603


def _last_line(text: str) -> str:
    r"""Give what a program said last, where it mostly says what went wrong.

    Examples
    --------
    >>> _last_line("WARNING: slow\nERROR: No matching distribution found\n\n")
    'ERROR: No matching distribution found'
    """
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")
