"""The snapshots in a master's folder, and the queries that need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.errors import (
    MasterError,
    MasterNotFoundError,
    OptionError,
    SnapshotNotFoundError,
)
from semistream.master.arguments import master_folder
from semistream.master.files.drafts import DATA
from semistream.master.files.format import GENERATIONS, Manifest
from semistream.master.snapshots.pins import HELD, all_pins

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path


__all__ = [
    "Snapshot",
    "ancestors",
    "find_snapshot",
    "list_snapshots",
    "missing_snapshot",
    "whole_snapshots",
]


@dataclass(frozen=True)
class Snapshot:
    """One snapshot in a master's folder."""

    manifest: Manifest
    time: float
    """When it was made, in seconds since 1970."""
    current: bool
    pinned_by: tuple[str, ...]
    """The queries that may still read it, each with its micro-batch."""


def list_snapshots(path: str | os.PathLike[str]) -> list[Snapshot]:
    """List the snapshots in a master's folder, the newest first.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> [(s.manifest.statistics.rows, s.current, s.pinned_by) for s in list_snapshots(path)]
    [(2, True, ())]
    """
    folder = master_folder(path)
    current = Manifest.load(folder)
    while True:
        snapshots = list(_snapshots(folder, current))
        newer = current if any(each.current for each in snapshots) else Manifest.load(folder)
        if newer.files == current.files:
            return sorted(snapshots, key=lambda each: (each.current, each.time), reverse=True)
        current = newer  # a build has replaced the one that was


def _snapshots(folder: Path, current: Manifest) -> Iterator[Snapshot]:
    """Yield the snapshots, but for those that another process has just removed."""
    pins = all_pins(folder)
    for manifest in whole_snapshots(folder, current):
        queries = (
            "a DataFrame" if p.query.startswith(HELD) else f"{p.query} batch {p.batch}"
            for p in pins
            if p.pin.files == manifest.files
        )
        try:
            made = (folder / manifest.name("pages")).stat().st_mtime
        except FileNotFoundError:
            continue
        yield Snapshot(manifest, made, manifest.files == current.files, tuple(sorted(queries)))


def whole_snapshots(folder: Path, current: Manifest) -> Iterator[Manifest]:
    """Yield the manifests of the snapshots whose files are there."""
    yield current
    for path in folder.glob("*.manifest"):
        if DATA.fullmatch(path.name) and path.stem != current.files:
            try:
                manifest = Manifest.load(folder, path.name)
            except MasterError:  # removed just now, or of another version
                continue
            if (folder / manifest.name("pages")).exists():
                yield manifest


def find_snapshot(folder: Path, wanted: object) -> Manifest:
    """Return the manifest of a snapshot by its id, that of its files, or a prefix of either.

    Of several with the same content it is that of the current one, or else the newest.
    """
    if not isinstance(wanted, str):
        msg = f"snapshot={wanted!r} is a {type(wanted).__name__}; give its id, or its beginning"
        raise OptionError(msg)
    current = Manifest.load(folder)
    if wanted in {current.files, current.snapshot}:
        return current
    if DATA.fullmatch(f"{wanted}.manifest"):
        try:
            return Manifest.load(folder, f"{wanted}.manifest")
        except MasterNotFoundError:
            raise missing_snapshot(folder, wanted) from None
    manifests = [s.manifest for s in list_snapshots(folder)]
    matches = [manifest for manifest in manifests if manifest.files.startswith(wanted)]
    if not wanted or len({manifest.snapshot for manifest in matches}) != 1:
        raise missing_snapshot(folder, wanted)
    return matches[0]


def missing_snapshot(folder: Path, wanted: str) -> SnapshotNotFoundError:
    """Return an error that lists the snapshots that there are."""
    there = ", ".join(
        s.manifest.files + (" (the current one)" if s.current else "")
        for s in list_snapshots(folder)
    )
    msg = (
        f"{folder}: snapshot={wanted!r} is not here, or not the only one whose id begins so; there "
        f"are: {there}. Leave snapshot out for the current one."
    )
    return SnapshotNotFoundError(msg)


def ancestors(folder: Path, manifest: Manifest) -> Iterator[Manifest]:
    """Yield the snapshots that this one was made from by changes, the nearest first.

    Of those that were removed the manifest and the changes stay for a few generations.
    """
    for _ in range(GENERATIONS):
        if not manifest.parent:
            return
        try:
            manifest = Manifest.load(folder, f"{manifest.parent}.manifest")
        except MasterNotFoundError:
            return
        yield manifest
