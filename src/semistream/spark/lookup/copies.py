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
from semistream.system.shared_folder import own_folder, private_place
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.spark.lookup.job import Copies

__all__ = ["local_copy"]

_DRAFT = ".draft-"
_CHUNK = 8 << 20
_LINEAGE = 16  # files in a copy
_AFRESH = 10.0  # seconds after which the source is asked again whether it was built anew
_asked: dict[tuple[str, Copies], tuple[float, str, str]] = {}
_in_use: dict[Path, int] = {}


def local_copy(source: str, copies: Copies, files: str = "") -> str:
    """Give the folder of a copy of the master at ``source``, a path or an URI, and keep it in use.

    Whoever comes first on a host fetches it, others wait. Copies that no process uses go, the
    longest unused first, as far as the limit asks. ``files`` names the snapshot; else it is the
    current one, as of a few seconds ago.
    """
    known = _asked.get((source, copies))
    if known is None or known[1] != files or (not files and _is_old(known[0])):
        copy = _fetched(source, copies, files)
        if known is not None and known[2] != str(copy):
            _leave(Path(known[2]))  # others may remove it; opened files stay
        known = _asked[source, copies] = time.monotonic(), files, str(copy)
    return known[2]


def _is_old(asked: float) -> bool:
    return time.monotonic() - asked > _AFRESH


def _fetched(source: str, copies: Copies, files: str) -> Path:
    system, path = _file_system(source)
    manifest = _manifest(system, path, source, files)
    usual = private_place("semistream-copies", Path(tempfile.gettempdir()))
    folder = own_folder(own_folder(Path(copies.folder or usual)) / "masters")
    copy = folder / manifest.files
    with _alone(folder):
        if not _is_whole(copy, manifest):
            _leave(copy)  # the lock on what is left of a damaged one would not hold the new one
            _remove_drafts(folder)
            size = sum(system.get_file_info(f"{path}/{name}").size or 0 for name in manifest.names)
            _make_room(folder, size, copies.limit, source)
            _copy(system, path, manifest, copy)
        _use(copy)
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


def _remove_drafts(folder: Path) -> None:
    """Remove what processes left that were killed; no other is at it now."""
    for draft in folder.glob(f"{_DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)


def _file_system(source: str) -> tuple[fs.FileSystem, str]:
    if "://" not in source:
        return fs.LocalFileSystem(), str(Path(source).resolve())
    return locate(source)


def _manifest(system: fs.FileSystem, path: str, source: str, files: str) -> Manifest:
    """Read the manifest of a snapshot, or the current one; it may have no copy under its name."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ([f"{files}.manifest"] if files else []) + [MANIFEST]:
            with suppress(FileNotFoundError):
                _copy_file(system, f"{path}/{name}", Path(scratch) / name)
                manifest = _loaded(Path(scratch), name, source)
                if manifest.files.startswith(files):
                    return manifest
    if files:
        msg = f"{without_secrets(source)}: the master has no snapshot {files} (any more)."
        raise SnapshotNotFoundError(msg)
    msg = f"{without_secrets(source)}: there is no master table (no {MANIFEST}); see build_master"
    raise MasterNotFoundError(msg)


def _loaded(scratch: Path, name: str, source: str) -> Manifest:
    try:
        return Manifest.load(scratch, name)
    except MasterError as error:  # named by where it came from, not by a file that is gone
        msg = str(error).replace(str(scratch), without_secrets(source))
        raise type(error)(msg) from None


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
        shutil.rmtree(copy, ignore_errors=True)  # what is left of one
        draft.rename(copy)
        sync_folder(copy.parent)
    except FileNotFoundError as error:
        msg = f"{path}: the master was built anew while it was copied"
        raise MasterError(msg) from error  # Spark tries again
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy_lineage(system: fs.FileSystem, path: str, manifest: Manifest, draft: Path) -> None:
    """Copy what tells of the snapshots before, so that rows in memory are not all forgotten."""
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
    held = {p: sum(f.stat().st_size for f in p.iterdir()) for p in copies}
    for old in sorted(copies, key=lambda p: p.stat().st_mtime):
        if sum(held.values()) + size > limit and _unused(old):
            # Under this name it is no copy any more, even if this process is killed.
            shutil.rmtree(old.rename(old.with_name(f"{_DRAFT}{old.name}")))
            del held[old]
    if sum(held.values()) + size > limit:
        needed = format_bytes(sum(held.values()) + size + (1 << 30))
        msg = (
            f"a local copy of {without_secrets(source)} needs {format_bytes(size)}, copies in use "
            f"have {format_bytes(sum(held.values()))}, the limit is {format_bytes(limit)}; give "
            f"localize='{needed}' or more"
        )
        raise BudgetError(msg)


def _use(copy: Path) -> None:
    """Hold a lock as long as this process lives, so that no other removes the copy."""
    if copy not in _in_use:
        _in_use[copy] = os.open(copy, os.O_RDONLY)
        fcntl.flock(_in_use[copy], fcntl.LOCK_SH)
    os.utime(copy)


def _leave(copy: Path) -> None:
    if copy in _in_use:
        os.close(_in_use.pop(copy))


def _unused(copy: Path) -> bool:
    if copy in _in_use:
        return False
    handle = os.open(copy, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(handle)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
