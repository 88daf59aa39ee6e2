"""Removal of snapshots.

The current one stays, and those that are pinned (see `master.snapshots.pins`). Of the others
only the changes stay, for a few generations: hot sets with rows of theirs are carried over.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from semistream.errors import MasterError, MasterNotFoundError
from semistream.master.arguments import master_folder
from semistream.master.files.drafts import DATA, exclusive, remove_others, sync_folder
from semistream.master.files.format import MANIFEST, Manifest, lost_manifest
from semistream.master.snapshots.pins import all_pins, alone, remove_stale
from semistream.master.snapshots.snapshots import ancestors, list_snapshots, whole_snapshots
from semistream.units import parse_seconds

if TYPE_CHECKING:
    import os
    from pathlib import Path

__all__ = ["KEEP", "clean_master", "remove_unneeded"]

log = logging.getLogger(__name__)

KEEP = "7d"
"""How long the pins of a query stay that is not running."""
_NOTE = ".query-"  # a worker's note: the query's UUID, then the columns that it reads
_UUID = 36  # characters


def clean_master(path: str | os.PathLike[str], keep: float | str = KEEP) -> list[str]:
    """Remove the snapshots that no query can need; return the ids of their files.

    Every build does so when it is done; call this to have the room now, or after queries were
    given up.

    Parameters
    ----------
    path
        The master's folder.
    keep
        How long the snapshots of a query stay that has not been seen: seconds, or a string such
        as ``"7d"``. One that is started again afterwards, and has to repeat a micro-batch, does
        so with the current snapshot; a pipeline that splits rows refuses to.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> clean_master(path)
    []
    """
    folder, seconds = master_folder(path), parse_seconds(keep, "keep")
    Manifest.load(folder)  # else a folder that is not there would be made
    with exclusive(folder):
        before = {s.manifest.files for s in list_snapshots(folder)}
        remove_unneeded(folder, seconds)
        return sorted(before - {s.manifest.files for s in list_snapshots(folder)})


def remove_unneeded(folder: Path, keep: float | None = None, now: float | None = None) -> None:
    """Remove snapshots, pins and notes that no one can need; the caller has locked the folder.

    Parameters
    ----------
    folder
        The master's folder.
    keep
        Seconds for which the pins of a query stay that is not running.
    now
        The time, in seconds since 1970.
    """
    keep = parse_seconds(KEEP) if keep is None else keep
    now = time.time() if now is None else now
    try:
        _remove_unneeded(folder, keep, now)
    except Exception as error:  # what was published is no failure for it
        log.warning(
            "%s: what no query needs cannot be removed (%s); the next build tries again. If pins "
            "are another user's, let the one who builds write there, or run semistream master "
            "clean as the one who runs queries",
            folder,
            error,
        )


def _remove_unneeded(folder: Path, keep: float, now: float) -> None:
    try:
        current = Manifest.load(folder)
    except MasterNotFoundError:
        remove_others(folder, _kept_without_manifest(folder))  # what a build left that died
        return
    except MasterError:  # another version's, perhaps: all stays until a build is done
        return
    sync_folder(folder)  # the manifest's name must be on disk before what it replaced goes
    with alone(folder) as locked:
        queries = remove_stale(folder, keep, now) if locked else set()
        for note in folder.glob(f"{_NOTE}*"):
            query = note.name.removeprefix(_NOTE)[:_UUID]
            if query not in queries and note.stat().st_mtime < now - keep:
                note.unlink(missing_ok=True)
        pins = all_pins(folder)
        if damaged := [pinned.path for pinned in pins if not pinned.pin.files]:
            log.warning(
                "%s: damaged, so that any snapshot may be the one that a micro-batch is to read: "
                "none is removed until the query has made newer pins or is given up. Remove the "
                "file if that micro-batch is committed",
                ", ".join(map(str, damaged)),
            )
            remove_others(folder, _data(folder))
            return
        wanted = {current.files, *(pinned.pin.files for pinned in pins)}
        there = [m for m in whole_snapshots(folder, current) if m.files in wanted]
        # Also where a manifest cannot be read here: queries of another version may read it.
        files = [path.name for path in folder.iterdir() if path.stem in wanted]
        for manifest in there:
            files += [*manifest.names, manifest.name("manifest")]
            for older in ancestors(folder, manifest):
                files += [older.name("manifest"), older.name("changes")]
        remove_others(folder, files)


def _data(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if DATA.fullmatch(path.name)]


def _kept_without_manifest(folder: Path) -> list[str]:
    """Return the data files that stay: all, if they are a snapshot's, or a query has pinned one."""
    lost = lost_manifest(folder)
    if not lost and not all_pins(folder):
        return []
    log.warning(
        "%s: %s is missing, the files of snapshots are not and stay until a build is done%s",
        folder,
        MANIFEST,
        f"; to have the newest back: cp {folder / lost} {folder / MANIFEST}" if lost else "",
    )
    return _data(folder)
