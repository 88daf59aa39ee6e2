"""Files that appear whole or not at all.

A build writes to unnamed files and links their names when all is written, so that a process that
dies, even by SIGKILL, leaves nothing behind. Where a file system has no unnamed files, drafts have
names with a prefix that the next build removes. A name is never used twice, so that whoever has
opened a file, or is about to, reads what was written with the manifest that names it.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import mmap
import os
import re
import shutil
import tempfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import pyarrow as pa

from semistream.errors import MasterError, SemistreamError
from semistream.master.files.locks import open_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer

__all__ = [
    "DATA",
    "Draft",
    "ReadFile",
    "exclusive",
    "make_folder",
    "publish",
    "remove_others",
    "scratch",
    "staging_folder",
    "sync_folder",
    "writing",
]

_PREFIX = ".draft-"
_LOCK = ".lock"  # stays: were it removed, two could hold two files of this name
_REMOVALS = 10  # attempts to empty a folder that tasks may still write to
_COPY = 1 << 30  # bytes of one call: less than the kernel's limit of 2 GiB
DATA = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}\.(pages|index|filter|changes|manifest)")
"""Names of data files; whatever else is in a master's folder is not touched."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise a `MasterError` that names the file where the operating system fails to write it."""
    try:
        yield
    except SemistreamError:
        raise
    except OSError as error:
        where = error.filename2 or error.filename or path
        msg = (
            f"{where} cannot be written: {error.strerror or error}; make room there, mend "
            "permissions or the disk, or choose another path, and try again"
        )
        failure = MasterError(msg)
        failure.errno = error.errno  # some callers go on without what is not permitted
        raise failure from error


class _File(io.FileIO):
    """A file whose errors name it; a descriptor has no name."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(handle, "r+b")
        self._path = path

    def write(self, data: ReadableBuffer, /) -> int:
        with writing(self._path):
            return super().write(data)


class Draft:
    """A file under construction in ``folder``; it exists for others once it is published."""

    def __init__(self, folder: Path, content: bytes | memoryview = b"") -> None:
        self._folder = folder
        self._name: Path | None = None
        try:
            handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644)
        except OSError:  # no unnamed files here (NFS, some overlays)
            self._name = self._fresh_name()
            with writing(folder):
                handle = os.open(self._name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        path = self._name or folder
        self.file: IO[bytes] = io.BufferedRandom(_File(handle, path), buffer_size=1 << 20)
        self.file.write(content)

    def append(self, path: Path, start: int = 0, length: int | None = None) -> None:
        """Append a file's content, or some of it; the file system may share the bytes."""
        end = self.file.seek(0, os.SEEK_END)
        with path.open("rb", buffering=0) as source:
            wanted = os.fstat(source.fileno()).st_size - start if length is None else length
            done = 0
            with suppress(OSError):  # not between these file systems: what is left is copied here
                handles = source.fileno(), self.file.fileno()
                while got := os.copy_file_range(
                    *handles, min(_COPY, wanted - done), start + done, end + done
                ):
                    done += got
            source.seek(start + done)
            self.file.seek(end + done)
            while data := source.read(min(1 << 20, wanted - done)):
                done += self.file.write(data)

    def sync(self) -> None:
        """Write everything to disk."""
        self.file.flush()
        with writing(self._name or self._folder):
            os.fsync(self.file.fileno())

    def publish(self, name: str) -> None:
        """Name the file atomically; the last writer wins."""
        with writing(self._folder / name):
            if self._name is None:
                self._link(self._fresh_name())
            assert self._name is not None  # noqa: S101 - for mypy
            self._name.replace(self._folder / name)
            self._name = None

    def publish_first(self, name: str) -> bool:
        """Name the file unless another has the name; return whether that succeeded."""
        try:
            if self._name is None:
                self._link(self._folder / name)
                self._name = None
            else:
                (self._folder / name).hardlink_to(self._name)
        except FileExistsError:
            return False
        return True

    def _fresh_name(self) -> Path:
        return self._folder / f"{_PREFIX}{uuid.uuid4().hex}"

    def _link(self, name: Path) -> None:
        # A directory handle, though the path is absolute: else Python calls link(2), which does
        # not follow the symbolic link in /proc.
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.link(f"/proc/self/fd/{self.file.fileno()}", name, src_dir_fd=folder)
        finally:
            os.close(folder)
        self._name = name

    def close(self) -> None:
        """Close the file; one that was not published is removed."""
        self.file.close()
        if self._name is not None:
            self._name.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def publish(folder: Path, data: dict[str, Draft], manifest: tuple[str, Draft]) -> None:
    """Name the data files, then the manifest, which makes them the master."""
    name, draft = manifest
    for file in (*data.values(), draft):
        file.sync()
    for data_name, file in data.items():
        file.publish(data_name)
    sync_folder(folder)  # a manifest on disk must find its files there
    draft.publish(name)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries, or a file's bytes, to disk."""
    with writing(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path, parents: bool = False) -> None:
    """Create a folder if need be, with its parents if asked; their names reach the disk."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except FileExistsError:
        msg = f"{folder} is a file, and must be a folder; remove it, or choose another path"
        raise MasterError(msg) from None
    for path in created:
        if os.access(path.parent, os.R_OK):  # a folder may be entered and not be read
            sync_folder(path.parent)


def scratch(folder: Path | None) -> IO[bytes]:
    """Open a temporary file without a name."""
    place = folder or Path(tempfile.gettempdir())
    with tempfile.TemporaryFile(prefix=_PREFIX, dir=place, buffering=0) as file:
        return io.BufferedRandom(_File(os.dup(file.fileno()), place))


def remove_others(folder: Path, keep: Iterable[str]) -> None:
    """Remove drafts, and all data files but these: earlier snapshots, builds that died."""
    kept = set(keep)
    for path in folder.iterdir():
        ours = path.name.startswith(_PREFIX) or DATA.fullmatch(path.name)
        if not ours or path.name in kept:
            continue
        if not path.is_dir():
            path.unlink(missing_ok=True)
        for _ in range(_REMOVALS):  # a task that still runs may put a file in while it is emptied
            if path.exists():
                shutil.rmtree(path, ignore_errors=True)


def staging_folder(folder: Path) -> Path:
    """Create a folder for the parts of a distributed build; it is removed like a draft."""
    path = folder / f"{_PREFIX}{uuid.uuid4().hex}"
    path.mkdir()
    return path


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock the folder for one build; create it, and remove it again if it stays empty."""
    with writing(folder):
        created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with writing(folder):
            handle = _lock(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                if [path.name for path in folder.iterdir()] == [_LOCK]:
                    (folder / _LOCK).unlink()
            os.close(handle)
    finally:
        for path in created:
            with suppress(OSError):
                path.rmdir()  # succeeds only if empty


def _lock(folder: Path) -> int:
    while True:
        make_folder(folder, parents=True)
        try:
            handle = open_lock(folder / _LOCK)
        except FileNotFoundError:  # removed by a build that failed just now
            continue
        except OSError:
            if os.access(folder, os.W_OK):
                raise
            handle = os.open(folder, os.O_RDONLY)  # no one can build for want of permission
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            msg = f"{folder}: another build is writing this master; wait, or choose another path"
            raise MasterError(msg) from None
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # likewise removed, before it was locked


def resident_pages(address: int, size: int) -> int:
    """Return how many pages of mapped memory are in the page cache; −1 if that is unknown."""
    flags = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags)
    return -1 if failed else sum(flag & 1 for flag in bytes(flags))


class ReadFile:
    """A file open for reading; it stays readable when a build replaces the master."""

    def __init__(self, path: Path, flags: int = 0) -> None:
        self.path = path
        self.handle = -1
        """The file's descriptor."""
        self._map: pa.Buffer | None = None
        self.handle = os.open(path, os.O_RDONLY | flags)
        self.size = os.fstat(self.handle).st_size

    def mapped(self) -> pa.Buffer:
        """Map the whole content into memory, once: readers share what was touched."""
        if self._map is None:
            whole = mmap.mmap(self.handle, self.size, prot=mmap.PROT_READ) if self.size else b""
            self._map = pa.py_buffer(whole)
        return self._map

    def expect(self, start: int, length: int) -> None:
        """Ask the operating system to read these bytes ahead."""
        os.posix_fadvise(self.handle, start, length, os.POSIX_FADV_WILLNEED)

    def read_into(self, memory: memoryview, start: int) -> int:
        """Fill ``memory`` with the bytes from ``start`` on; return how many there were."""
        done = 0
        while done < len(memory) and (got := os.preadv(self.handle, [memory[done:]], start + done)):
            done += got
        return done

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
