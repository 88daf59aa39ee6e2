"""Pins: the snapshot of a micro-batch, the same for all its tasks and on replay.

::

    products/.pins/
      lock                       shared by those who pin, exclusive for whoever removes
      <query id>/<batch id>      {"files": …, "sequence": n}, written once, by whoever is first
      held-<id>/<files>          the same, for the DataFrames of a driver that are no streams

Pins of a query are ordered by their sequence numbers: clocks jump, and the number of a micro-batch
may come again.

A pin is written before the snapshot's files are opened. So whoever removes snapshots, and reads the
pins while no one can add to them, removes none that someone is about to open.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from semistream.errors import MasterError
from semistream.master.files.drafts import DATA, Draft, make_folder, sync_folder
from semistream.master.files.format import Manifest
from semistream.master.files.locks import open_lock, wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "HELD",
    "KEPT",
    "Pin",
    "Pinned",
    "all_pins",
    "alone",
    "can_pin",
    "hold",
    "pin",
    "pin_folder",
    "release",
    "remove_stale",
]

log = logging.getLogger(__name__)

KEPT = 3
"""Pins of a query that stay: the newest batch may be replayed, tasks of the one before may still
be running, and one more for who takes back the last commit of a checkpoint by hand."""
HELD = "held-"
"""Prefix of the names of holders that are no queries."""
_LOCK = "lock"
_DAY = 86_400.0  # seconds: the longest that a DataFrame is expected to be computed


@dataclass(frozen=True)
class Pin:
    """The snapshot of a micro-batch, decided once and for all."""

    files: str
    """Prefix of the snapshot's files; empty where the pin is damaged."""
    sequence: int = field(default=0, compare=False)
    """One more than that of the query's pin before."""


_DAMAGED = Pin("")


@dataclass(frozen=True)
class Pinned:
    """A pin and its file."""

    path: Path
    pin: Pin
    made: float
    """When it was written or renewed, by the clock of the file system."""

    @property
    def query(self) -> str:
        """The query that it belongs to, or its holder."""
        return self.path.parent.name

    @property
    def batch(self) -> str:
        """The micro-batch, by its number."""
        return self.path.name


def pin_folder(folder: Path) -> Path:
    """Return the folder of a master's pins."""
    return folder / ".pins"


def pin(folder: Path, query: str, batch: str, files: str = "") -> Pin:
    """Return the pin of a micro-batch; the first caller pins ``files``, or the current snapshot.

    Examples
    --------
    >>> import tempfile, pathlib, pyarrow as pa, semistream as ss
    >>> path = pathlib.Path(tempfile.mkdtemp())
    >>> first = ss.build_master(pa.table({"id": [1]}), path, key="id")
    >>> before = pin(path, "a query", "7")
    >>> second = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> pin(path, "a query", "7") == before
    True
    >>> pin(path, "a query", "8").files == second.manifest.files
    True
    """
    path = pin_folder(folder) / query / batch
    known = _read(path)
    if known is None:
        Manifest.load(folder)  # no master is an error that says so
        with _locked(folder, fcntl.LOCK_SH):
            known = _write(path, files or Manifest.load(folder).files)
            # What the query cannot need any more: pins must not pile up between builds.
            for old in _newest_first(path.parent)[KEPT:]:
                if old.path != path:
                    old.path.unlink(missing_ok=True)
    if not known.files:
        msg = (
            f"{path}: this pin is damaged; which snapshot the micro-batch was begun with is not "
            "known. Restore the file, or remove it: the micro-batch is then repeated with the "
            "current snapshot, which is right unless some of its rows were already written with "
            "another"
        )
        raise MasterError(msg)
    return known


def hold(folder: Path, holder: str, files: str = "") -> Pin:
    """Keep a snapshot, by default the current one, from being removed for a day.

    Another call renews the day.
    """
    Manifest.load(folder)
    with _locked(folder, fcntl.LOCK_SH):
        files = files or Manifest.load(folder).files
        path = pin_folder(folder) / f"{HELD}{holder}" / files
        known = _read(path)
        if known == _DAMAGED:
            path.unlink()
        if known in {None, _DAMAGED}:
            _write(path, files)
        os.utime(path)
    return Pin(files)


def release(folder: Path, holder: str) -> None:
    """Release all snapshots of a holder."""
    with suppress(OSError), alone(folder):  # the master may be gone
        shutil.rmtree(pin_folder(folder) / f"{HELD}{holder}", ignore_errors=True)


def can_pin(folder: Path) -> bool:
    """Return whether pins can be written here, by writing one that is no one's."""
    place, name = pin_folder(folder), f".trial-{uuid.uuid4().hex}"
    try:
        with _locked(folder, fcntl.LOCK_SH), Draft(place) as draft:
            draft.publish_first(name)
            (place / name).unlink()
    except OSError:
        return False
    return True


def _write(path: Path, files: str) -> Pin:
    """Write a pin, or return the one that someone else has written meanwhile."""
    make_folder(path.parent)
    last = max((pinned.pin.sequence for pinned in _newest_first(path.parent)), default=0)
    with Draft(path.parent, json.dumps(asdict(Pin(files, last + 1))).encode()) as draft:
        draft.sync()
        if draft.publish_first(path.name):
            sync_folder(path.parent)  # a replay after a power cut must find it
    known = _read(path)
    assert known is not None  # noqa: S101 - no one removes it meanwhile
    return known


def _read(path: Path) -> Pin | None:
    """Read a pin; None where there is none, one without files where it is damaged."""
    try:
        values = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError):
        return _DAMAGED
    fields = values if isinstance(values, dict) else {}
    files, sequence = str(fields.get("files")), fields.get("sequence")
    if not DATA.fullmatch(f"{files}.manifest"):
        return _DAMAGED
    return Pin(files, sequence if type(sequence) is int else 0)


def all_pins(folder: Path) -> list[Pinned]:
    """Return all pins of a master."""
    return [pinned for place in _holders(folder) for pinned in _newest_first(place)]


def _holders(folder: Path) -> list[Path]:
    return sorted(path for path in _inside(pin_folder(folder)) if path.is_dir())


def _inside(folder: Path) -> list[Path]:
    """List a folder; nothing if it is not there, or not any more."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def remove_stale(folder: Path, keep: float, now: float) -> set[str]:
    """Remove the pins that no one can need; return the queries of those that stay.

    No one may pin meanwhile, see `alone`. A pin from the future, written before the clock went
    back, counts as written now.
    """
    stay = set()
    for place in _holders(folder):
        pins, held = _newest_first(place), place.name.startswith(HELD)
        limit = now - (min(keep, _DAY) if held else keep)
        recent = [pinned for pinned in pins if min(pinned.made, now) > limit]
        needed = recent if held else pins[: KEPT if recent else 0]
        for path in _inside(place):  # drafts, too
            if path not in {pinned.path for pinned in needed}:
                path.unlink(missing_ok=True)
        if needed:
            stay.add(place.name)
        else:
            _remove_holder(place, pins)
    return stay


def _remove_holder(place: Path, pins: list[Pinned]) -> None:
    with suppress(FileNotFoundError):
        place.rmdir()
    if pins and not place.name.startswith(HELD):
        batch, made = pins[0].batch, datetime.fromtimestamp(max(p.made for p in pins), UTC)
        log.warning(
            "%s: the pins of query %s are removed: it was last seen %s, with micro-batch %s. If it "
            "is started again and has to repeat that, its snapshot is gone",
            place.parent.parent,
            place.name,
            made.isoformat(timespec="seconds"),
            batch,
        )


def _newest_first(folder: Path) -> list[Pinned]:
    pins = []
    for path in _inside(folder):
        with suppress(FileNotFoundError):  # removed just now by another process
            if not path.name.startswith(".") and (pin := _read(path)) is not None:
                pins.append(Pinned(path, pin, path.stat().st_mtime))
    # A damaged one has no sequence, and comes last: it ages out behind newer ones.
    return sorted(pins, key=lambda p: (p.pin.sequence, p.batch.zfill(20)), reverse=True)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Exclude those who pin; yield whether that was done.

    Where there are no pins yet there is no need: who pins creates their folder first, and reads
    the current manifest, whose files no one removes, afterwards. But pins that are written
    meanwhile must not be removed then.
    """
    if not pin_folder(folder).is_dir():
        yield False
        return
    with _locked(folder, fcntl.LOCK_EX):
        yield True


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    place = pin_folder(folder)
    make_folder(place)
    handle = open_lock(place / _LOCK)
    try:
        wait_for_lock(handle, how, place / _LOCK)
        yield
    finally:
        os.close(handle)
