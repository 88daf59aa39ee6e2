"""Copies of masters on a host's own disk, fetched once and shared by its workers."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import fs

from semistream.errors import (
    BudgetError,
    MasterError,
    MasterNotFoundError,
    SnapshotNotFoundError,
)
from semistream.master.files.drafts import sync_folder, writing
from semistream.master.files.format import MANIFEST, Manifest, checksum
from semistream.master.place import locate, without_secrets
from semistream.spark.lookup.process_cache import PROCESS
from semistream.system.shared_folder import own_folder, private_place
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.spark.lookup.job import Copies

__all__ = ["local_copy"]

_DRAFT = ".draft-"
_CHUNK = 8 << 20  # bytes: large enough for an object store, small beside any budget
_LINEAGE = 16  # files in a copy: those of some ten snapshots, a few KB each
_TTL = 10.0  # seconds after which the source is asked again whether it was rebuilt


def local_copy(source: str, copies: Copies, files: str = "") -> str:
    """Return the folder of a copy of the master at ``source``, a path or a URI, and lock it.

    The first process of a host fetches it, others wait. Copies that no process uses are removed,
    the longest unused first, as far as the limit asks. ``files`` names the snapshot; else it is the
    current one, as of a few seconds ago.
    """
    known, now = PROCESS.copies.get((source, copies)), time.monotonic()
    if known is None or known[1] != files or (not files and now - known[0] > _TTL):
        copy = _fetch(source, copies, files)
        if known is not None and known[2] != str(copy):
            _unlock(Path(known[2]))  # others may remove it; opened files stay
        known = PROCESS.copies[source, copies] = time.monotonic(), files, str(copy)
    return known[2]


def _fetch(source: str, copies: Copies, files: str) -> Path:
    if "://" in source:
        system, path = locate(source)
    else:
        system, path = fs.LocalFileSystem(), str(Path(source).resolve())
    manifest = _manifest(system, path, source, files)
    usual = private_place("semistream-copies", Path(tempfile.gettempdir()))
    folder = own_folder(own_folder(Path(copies.folder or usual)) / "masters")
    copy = folder / manifest.files
    with _alone(folder):
        if not _is_whole(copy, manifest):
            _unlock(copy)  # the lock on what is left of a damaged one would not hold the new one
            for draft in folder.glob(f"{_DRAFT}*"):  # of processes that were killed
                shutil.rmtree(draft, ignore_errors=True)
            size = sum(system.get_file_info(f"{path}/{name}").size or 0 for name in manifest.names)
            _make_room(folder, size, copies.limit, source)
            _copy(system, path, manifest, copy)
        if copy not in PROCESS.copy_locks:  # until this process ends
            handle = PROCESS.copy_locks[copy] = os.open(copy, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_SH)
        os.utime(copy)
    return copy


def _is_whole(copy: Path, manifest: Manifest) -> bool:
    """Check that a copy has what the manifest says: sizes, and the index, whose size it lacks."""
    sizes = {
        "pages": manifest.pages_bytes,
        "filter": 8 * manifest.filter_words,
        "changes": 8 * manifest.changed,
    }
    try:
        index = (copy / manifest.name("index")).read_bytes()
        return (
            Manifest.load(copy).files == manifest.files
            and checksum(index) == manifest.index_checksum
            and all(
                (copy / manifest.name(kind)).stat().st_size == size
                for kind, size in sizes.items()
                if manifest.name(kind) in manifest.names
            )
        )
    except OSError:  # a MasterError is one
        return False


def _manifest(system: fs.FileSystem, path: str, source: str, files: str) -> Manifest:
    """Read the manifest of a snapshot, or the current one; it may have no copy under its name."""
    shown = without_secrets(source)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ([f"{files}.manifest"] if files else []) + [MANIFEST]:
            try:
                _copy_file(system, f"{path}/{name}", Path(scratch) / name)
                manifest = Manifest.load(Path(scratch), name)
            except FileNotFoundError:
                continue
            except MasterError as error:  # named by where it came from, not by a file that is gone
                raise type(error)(str(error).replace(scratch, shown)) from None
            if manifest.files.startswith(files):
                return manifest
    if files:
        msg = f"{shown}: the master has no snapshot {files} (any more)."
        raise SnapshotNotFoundError(msg)
    msg = f"{shown}: there is no master table (no {MANIFEST}); see build_master"
    raise MasterNotFoundError(msg)


def _copy(system: fs.FileSystem, path: str, manifest: Manifest, copy: Path) -> None:
    """Copy under another name, and rename: a copy is whole or not there."""
    draft = copy.with_name(f"{_DRAFT}{copy.name}")
    draft.mkdir()
    try:
        for name in manifest.names:
            _copy_file(system, f"{path}/{name}", draft / name)
        (draft / MANIFEST).write_bytes(manifest.dump())
        _copy_lineage(system, path, manifest, draft)
        if not _is_whole(draft, manifest):
            msg = f"{path}: files of the master are not those that its manifest describes"
            raise MasterError(msg)  # a store that is behind, perhaps: Spark tries again
        for file in (*draft.iterdir(), draft):
            sync_folder(file)
        shutil.rmtree(copy, ignore_errors=True)  # what is left of a damaged one
        draft.rename(copy)
        sync_folder(copy.parent)
    except FileNotFoundError as error:
        msg = f"{path}: the master was rebuilt while it was copied"
        raise MasterError(msg) from error  # Spark tries again
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy_lineage(system: fs.FileSystem, path: str, manifest: Manifest, draft: Path) -> None:
    """Copy what describes earlier snapshots, so that rows in memory need not all be dropped."""
    with suppress(FileNotFoundError):
        while manifest.parent and len(list(draft.iterdir())) < _LINEAGE:
            for kind in ("manifest", "changes"):
                name = f"{manifest.parent}.{kind}"
                _copy_file(system, f"{path}/{name}", draft / name)
            manifest = Manifest.load(draft, f"{manifest.parent}.manifest")


def _copy_file(system: fs.FileSystem, source: str, target: Path) -> None:
    with system.open_input_stream(source) as reading, target.open("wb") as file:
        while data := reading.read(_CHUNK):
            with writing(target):
                file.write(data)
                file.flush()


def _make_room(folder: Path, size: int, limit: int, source: str) -> None:
    copies = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    sizes = {p: sum(f.stat().st_size for f in p.iterdir()) for p in copies}
    for old in sorted(copies, key=lambda p: p.stat().st_mtime):
        if sum(sizes.values()) + size > limit and _is_unused(old):
            # Under this name it is no copy any more, even if this process is killed.
            shutil.rmtree(old.rename(old.with_name(f"{_DRAFT}{old.name}")))
            del sizes[old]
    used = sum(sizes.values())
    if used + size > limit:
        msg = (
            f"a local copy of {without_secrets(source)} needs {format_bytes(size)}, copies in use "
            f"have {format_bytes(used)}, the limit is {format_bytes(limit)}; give "
            f"localize='{format_bytes(used + size + (1 << 30))}' or more"
        )
        raise BudgetError(msg)


def _unlock(copy: Path) -> None:
    if copy in PROCESS.copy_locks:
        os.close(PROCESS.copy_locks.pop(copy))


def _is_unused(copy: Path) -> bool:
    if copy in PROCESS.copy_locks:
        return False
    try:
        with _alone(copy, fcntl.LOCK_NB):
            return True
    except BlockingIOError:
        return False


@contextmanager
def _alone(folder: Path, how: int = 0) -> Iterator[None]:
    """Lock a folder exclusively."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(handle)
