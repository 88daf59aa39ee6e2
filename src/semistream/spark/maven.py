"""Jars from Maven Central, or the mirror that Maven's settings name, checked as they come."""

from __future__ import annotations

import hashlib
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from semistream.errors import SemistreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, int, int], None]

__all__ = ["CENTRAL", "Artifact", "JarsError", "download", "exists", "repository"]

CENTRAL = "https://repo1.maven.org/maven2"
CHUNK = 1 << 18
ATTEMPTS = 3
TIMEOUT = 60


class JarsError(SemistreamError, OSError):
    """Jars cannot be had; the message says which, from where, and what else can be done."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar in a Maven repository.

    Examples
    --------
    >>> Artifact("org.postgresql", "postgresql", "42.7.14").path
    'org/postgresql/postgresql/42.7.14/postgresql-42.7.14.jar'
    """

    group: str
    name: str
    version: str

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where it is in a repository."""
        return "/".join((self.group.replace(".", "/"), self.name, self.version, self.file))

    @property
    def coordinate(self) -> str:
        """What ``spark.jars.packages`` calls it."""
        return f"{self.group}:{self.name}:{self.version}"


def repository() -> str:
    """Give ``SEMISTREAM_MAVEN``, else the mirror in ``~/.m2/settings.xml``, else Maven Central."""
    chosen = os.environ.get("SEMISTREAM_MAVEN") or _mirror(Path.home() / ".m2" / "settings.xml")
    return (chosen or CENTRAL).rstrip("/")


def _mirror(settings: Path) -> str | None:
    try:
        root = ET.parse(settings).getroot()  # noqa: S314 - the user's own file
    except (OSError, ET.ParseError):
        return None
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        of = (mirror.findtext("{*}mirrorOf") or "").replace(" ", "").split(",")
        if {"*", "central", "external:*"} & set(of) and "!central" not in of:
            return mirror.findtext("{*}url")
    return None


def exists(artifact: Artifact) -> bool | None:
    """Ask the repository for the jar; ``None`` where it cannot be asked."""
    request = urllib.request.Request(f"{repository()}/{artifact.path}", method="HEAD")  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        return False if error.code == 404 else None
    except OSError:
        return None
    return True


def download(artifact: Artifact, folder: Path, progress: Progress | None = None) -> Path:
    """Bring a jar into a folder, unless it is there; it appears whole and checked, or not at all.

    Parameters
    ----------
    artifact
        The jar.
    folder
        Where to; made if it is not there.
    progress
        Called with the file's name, its bytes so far, and all of them.

    Raises
    ------
    JarsError
        It is not in the repository, the repository does not answer, or its bytes are not those
        whose checksum the repository gives.
    """
    target = folder / artifact.file
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    url = f"{repository()}/{artifact.path}"
    draft = folder / f".{artifact.file}.{os.getpid()}"
    try:
        digest = _insist(url, lambda: _copy(url, draft, artifact.file, progress))
        published = _insist(f"{url}.sha1", lambda: _read(f"{url}.sha1"))
        if published.split()[:1] != [digest]:
            raise JarsError(f"{url} came with other bytes than its checksum says; try again.")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def _insist(url: str, action: Callable[[], str]) -> str:
    """Try again when the network fails; not when the repository says no."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except OSError as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == ATTEMPTS:
                raise JarsError(f"{url} cannot be had: {error}.") from error
            time.sleep(attempt)
    raise AssertionError


def _copy(url: str, draft: Path, name: str, progress: Progress | None) -> str:
    digest = hashlib.sha1(usedforsecurity=False)  # what every repository publishes
    done = 0
    with urllib.request.urlopen(url, timeout=TIMEOUT) as source, draft.open("wb") as out:  # noqa: S310
        total = int(source.headers.get("Content-Length") or 0)
        while chunk := source.read(CHUNK):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress(name, done, total)
    if total and done != total:
        raise ConnectionError(f"{done} of {total} bytes came")
    return digest.hexdigest()


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as source:  # noqa: S310
        return str(source.read().decode())
