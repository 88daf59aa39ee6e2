"""Jars from Maven Central, or the mirror that Maven's settings name, checked as they come.

The digests of known releases are part of this package, so it does not matter who sends them. Of
others a repository tells the checksum, and is believed only where no one can change what it says.
"""

from __future__ import annotations

import hashlib
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from xml.etree import ElementTree as ET

from semistream.errors import SemistreamError
from semistream.system.user_cache import is_safe

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, int, int], None]

__all__ = ["CENTRAL", "DIGESTS", "Artifact", "JarsError", "download", "exists", "is_right"]
__all__ += ["repository", "trusted_repository"]

CENTRAL = "https://repo1.maven.org/maven2"
_CHUNK = 1 << 18  # bytes between two reports of progress
_ATTEMPTS = 3
_TIMEOUT = 60  # seconds without an answer
_LISTED = resources.files(__package__).joinpath("jars.sha256").read_text().splitlines()
DIGESTS = {name: digest for digest, name in (line.split() for line in _LISTED)}
"""Jar → SHA-256, for all releases that `semistream.spark.cluster.jars` names."""
T = TypeVar("T")


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
    """Return ``SEMISTREAM_MAVEN``, the mirror in ``~/.m2/settings.xml``, or Maven Central."""
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


def trusted_repository() -> str:
    """Return the repository, unless others on the way could change what it sends and its checksums.

    Raises
    ------
    JarsError
        It is asked by plain HTTP, and not on this machine.
    """
    url = urllib.parse.urlsplit(repository())
    if url.scheme == "http" and url.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise JarsError(
            f"{repository()} is asked without TLS, so that others can change what it sends; give "
            "an https:// address in SEMISTREAM_MAVEN or ~/.m2/settings.xml. Jars of the releases "
            "known to semistream can be had there, too, by: semistream jars fetch."
        )
    return repository()


def is_right(path: Path) -> bool:
    """Return whether a jar has its release's bytes, or could be written by us and root alone."""
    known = DIGESTS.get(path.name)
    if known is None:
        return all(is_safe(each.resolve(), owners=(0,)) for each in (path, path.parent))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == known


def exists(artifact: Artifact) -> bool | None:
    """Return whether the repository has the jar; None where it does not answer."""
    request = urllib.request.Request(f"{repository()}/{artifact.path}", method="HEAD")  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        return False if error.code == 404 else None
    except OSError:
        return None
    return True


def download(artifact: Artifact, folder: Path, progress: Progress | None = None) -> Path:
    """Download a jar into a folder, unless it is there; it appears whole, or not at all.

    ``progress`` is called with the file's name, its bytes so far, and all of them.

    Raises
    ------
    JarsError
        It is not in the repository, the repository does not answer, or its bytes are not those of
        the release.
    """
    target = folder / artifact.file
    if target.exists() and is_right(target):
        return target
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = DIGESTS.get(artifact.file)
    url = f"{repository() if known else trusted_repository()}/{artifact.path}"
    draft = folder / f".{artifact.file}.{os.getpid()}"
    try:
        sha1, sha256 = _insist(url, lambda: _copy(url, draft, artifact.file, progress))
        if (sha256 != known) if known else (sha1 != _published_sha1(url)):
            raise JarsError(f"{url} came with other bytes than its checksum says; try again.")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def _published_sha1(url: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(f"{url}.sha1", timeout=_TIMEOUT) as source:  # noqa: S310
            return str(source.read().decode())

    return "".join(_insist(f"{url}.sha1", read).split()[:1])


def _insist(url: str, action: Callable[[], T]) -> T:
    """Try again when the network fails; not when the repository says no."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return action()
        except OSError as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == _ATTEMPTS:
                raise JarsError(f"{url} cannot be had: {error}.") from error
            time.sleep(attempt)
    raise AssertionError


def _copy(url: str, draft: Path, name: str, progress: Progress | None) -> tuple[str, str]:
    sha1 = hashlib.sha1(usedforsecurity=False)  # what every repository publishes
    sha256 = hashlib.sha256()
    done = 0
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as source, draft.open("wb") as out:  # noqa: S310
        total = int(source.headers.get("Content-Length") or 0)
        while chunk := source.read(_CHUNK):
            out.write(chunk)
            sha1.update(chunk)
            sha256.update(chunk)
            done += len(chunk)
            if progress:
                progress(name, done, total)
    if total and done != total:
        raise ConnectionError(f"{done} of {total} bytes came")
    return sha1.hexdigest(), sha256.hexdigest()
