"""Programs of Debian packages: those that are installed, or unpacked into a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import CACHE

if TYPE_CHECKING:
    from collections.abc import Sequence

# Servers that refuse root run as another user, who may not look into root's home.
UNPACKED = Path("/var/tmp/semistream-tests") if os.geteuid() == 0 else CACHE / "debian"  # noqa: S108


def program(name: str, places: Sequence[str], packages: Sequence[str]) -> Path:
    """Find a program in one of these places (patterns below ``/``), or fetch its packages."""
    found = _look(Path("/"), places, name) or _look(UNPACKED / name, places, name)
    return found or _fetched(name, places, packages)


def libraries(found: Path) -> dict[str, str]:
    """Give the environment with which an unpacked program finds its libraries."""
    if not found.is_relative_to(UNPACKED):
        return {}
    root = UNPACKED / found.relative_to(UNPACKED).parts[0]
    folders = {
        str(library.parent) for library in root.rglob("*.so*") if "plugin" not in str(library)
    }
    return {"LD_LIBRARY_PATH": ":".join(sorted(folders))}


def _look(root: Path, places: Sequence[str], name: str) -> Path | None:
    found = [path for place in places for path in sorted(root.glob(f"{place}/{name}"))]
    return found[-1] if found else None


def _fetched(name: str, places: Sequence[str], packages: Sequence[str]) -> Path:
    UNPACKED.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=UNPACKED))
    try:
        _unpack(packages, draft)
        draft.chmod(0o755)
        # Another process may have been faster; its copy serves as well.
        if not (UNPACKED / name).exists():
            draft.rename(UNPACKED / name)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{name}: packages {' '.join(packages)} cannot be had: {error}")
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    found = _look(UNPACKED / name, places, name)
    assert found is not None, f"{name} is not in {' '.join(packages)}"
    return found


def _unpack(packages: Sequence[str], root: Path) -> None:
    with tempfile.TemporaryDirectory() as downloads:
        _run(["apt-get", "download", *packages], downloads)
        for package in Path(downloads).glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(root)], downloads)


def _run(command: Sequence[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)  # noqa: S603
