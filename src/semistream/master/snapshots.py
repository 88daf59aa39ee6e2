"""The snapshots in a master's folder: which there are, who needs them, which may go.

The current one stays, and those that are pinned (see `semistream.master.pins`). Of the others
only the changes stay, as far as a few generations back: so that whoever holds rows of one of them
can tell which are still right.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistream.errors import (
    CorruptPageError,
    MasterError,
    MasterNotFoundError,
    SnapshotNotFoundError,
)
from semistream.master.files import DATA, exclusive, remove_others
from semistream.master.format import MANIFEST, Manifest
from semistream.master.pins import HELD, all_pins, alone, remove_stale
from semistream.units import parse_seconds

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from semistream.master.pins import Pinned

__all__ = [
    "KEEP",
    "Snapshot",
    "changes_since",
    "clean_master",
    "find_snapshot",
    "keep_manifest",
    "missing_snapshot",
    "remove_unneeded",
    "snapshots",
]

KEEP = "7d"
"""How long the pins of a query stay that has not been seen."""
_GENERATIONS = 8
_NOTE = ".query-"
_UUID = 36


@dataclass(frozen=True)
class Snapshot:
    """One snapshot in a master's folder."""

    manifest: Manifest
    time: float
    """When it was made, in seconds since 1970."""
    current: bool
    pinned_by: tuple[str, ...]
    """The queries that may still read it, each with its micro-batch."""


def snapshots(path: str | os.PathLike[str]) -> list[Snapshot]:
    """List the snapshots in a master's folder, the newest first.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> [(s.manifest.statistics.rows, s.current, s.pinned_by) for s in snapshots(path)]
    [(2, True, ())]
    """
    folder = Path(path)
    current, pins = Manifest.load(folder), all_pins(folder)
    found = []
    for manifest in _whole(folder, current):
        of_it = (p for p in pins if p.pin.files == manifest.files)
        told = tuple(sorted(_tell(p) for p in of_it))
        made = (folder / manifest.name("pages")).stat().st_mtime
        found.append(Snapshot(manifest, made, manifest.files == current.files, told))
    return sorted(found, key=lambda each: (each.current, each.time), reverse=True)


def _tell(pinned: Pinned) -> str:
    if pinned.query.startswith(HELD):
        return "a DataFrame"
    return f"{pinned.query} batch {pinned.batch}"


def _whole(folder: Path, current: Manifest) -> Iterator[Manifest]:
    """Give the manifests of the snapshots whose files are there."""
    yield current
    for path in folder.glob("*.manifest"):
        if DATA.fullmatch(path.name) and path.stem != current.files:
            try:
                manifest = Manifest.load(folder, path.name)
            except MasterError:  # removed just now, or of another version
                continue
            if (folder / manifest.name("pages")).exists():
                yield manifest


def find_snapshot(folder: Path, wanted: str) -> Manifest:
    """Give the manifest of a snapshot by its id, that of its files, or the beginning of either.

    Of several with the same content the current one is taken, or else the newest.
    """
    current = Manifest.load(folder)
    if current.files.startswith(wanted) and wanted:
        return current
    if DATA.fullmatch(f"{wanted}.manifest"):
        try:
            return Manifest.load(folder, f"{wanted}.manifest")
        except MasterNotFoundError:
            raise missing_snapshot(folder, wanted) from None
    found = [s.manifest for s in snapshots(folder) if s.manifest.files.startswith(wanted)]
    if not wanted or len({manifest.snapshot for manifest in found}) != 1:
        raise missing_snapshot(folder, wanted)
    return found[0]


def missing_snapshot(folder: Path, wanted: str) -> SnapshotNotFoundError:
    """Give the error that tells which snapshots there are."""
    there = ", ".join(
        s.manifest.files + (" (the current one)" if s.current else "") for s in snapshots(folder)
    )
    msg = (
        f"{folder}: snapshot={wanted!r} is not here, or not the only one whose id begins so; there "
        f"are: {there}. Leave snapshot out for the current one."
    )
    return SnapshotNotFoundError(msg)


def keep_manifest(folder: Path) -> None:
    """Make the copy of the current manifest, where an older version of this package made none."""
    with suppress(MasterError):  # none, or another version's
        copy = folder / Manifest.load(folder).name("manifest")
        if not copy.exists():
            copy.hardlink_to(folder / MANIFEST)


def _ancestors(folder: Path, manifest: Manifest) -> Iterator[Manifest]:
    """Give the snapshots that this one was made from by changes, the nearest first.

    Of those that were removed the manifest and the changes are still there, for a while.
    """
    for _ in range(_GENERATIONS):
        if not manifest.parent:
            return
        try:
            manifest = Manifest.load(folder, f"{manifest.parent}.manifest")
        except MasterNotFoundError:
            return
        yield manifest


def changes_since(
    folder: Path, manifest: Manifest, most: int
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Give the ids of earlier snapshots, the newest first, and the codes of what changed since.

    A row whose code is not among them is the same in both snapshots. It ends where more than
    ``most`` codes would be needed, and where the changes of a snapshot are not there any more.
    """
    codes = np.empty(0, dtype=np.int64)
    with suppress(FileNotFoundError, MasterNotFoundError, CorruptPageError):
        for _ in range(_GENERATIONS):
            if not manifest.parent or len(codes) + manifest.changed > most:
                return
            codes = np.union1d(codes, manifest.changes(folder))
            yield manifest.parent.partition("-")[0], codes
            manifest = Manifest.load(folder, f"{manifest.parent}.manifest")


def clean_master(path: str | os.PathLike[str], keep: float | str = KEEP) -> list[str]:
    """Remove the snapshots that no query can need; give the ids of their files.

    Every build does so when it is done; this is for who wants the room now, or has given up
    queries and does not want to wait.

    Parameters
    ----------
    path
        The master's folder.
    keep
        How long the snapshots of a query stay that has not been seen: seconds, or a string such
        as ``"7d"``. One that is started again afterwards, and has to repeat a micro-batch, does
        so with the current snapshot.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> clean_master(path)
    []
    """
    folder, seconds = Path(path), parse_seconds(keep, "keep")
    Manifest.load(folder)  # else a folder that is not there would be made
    with exclusive(folder):
        before = {s.manifest.files for s in snapshots(folder)}
        remove_unneeded(folder, seconds)
        return sorted(before - {s.manifest.files for s in snapshots(folder)})


def remove_unneeded(folder: Path, keep: float | None = None, now: float | None = None) -> None:
    """Remove snapshots, pins and notes that no one can need; the caller holds the folder.

    Parameters
    ----------
    folder
        The master's folder.
    keep
        Seconds for which a query's pins stay though it was not seen.
    now
        The time, in seconds since 1970.
    """
    keep = parse_seconds(KEEP) if keep is None else keep
    now = time.time() if now is None else now
    try:
        current = Manifest.load(folder)
    except MasterNotFoundError:
        remove_others(folder, ())  # what a build left that died
        return
    except MasterError:  # another version's, perhaps: all stays until a build is done
        remove_others(folder, (path.name for path in folder.iterdir()))
        return
    with alone(folder):
        queries = remove_stale(folder, keep, now)
        _remove_notes(folder, queries, now - keep)
        wanted = {pinned.pin.files for pinned in all_pins(folder)}
        there = [m for m in _whole(folder, current) if m.files in wanted | {current.files}]
        remove_others(folder, _names(folder, there))


def _names(folder: Path, manifests: Iterable[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        yield from (*manifest.names, manifest.name("manifest"))
        for older in _ancestors(folder, manifest):
            yield from (older.name("manifest"), older.name("changes"))


def _remove_notes(folder: Path, queries: Iterable[str], limit: float) -> None:
    """Remove what workers noted of queries that have not been seen since."""
    for note in folder.glob(f"{_NOTE}*"):
        query = note.name.removeprefix(_NOTE)[:_UUID]
        if query not in queries and note.stat().st_mtime < limit:
            note.unlink(missing_ok=True)
