"""Open a master table, wherever it lives."""

from __future__ import annotations

import os
from inspect import signature
from typing import TYPE_CHECKING, Any, overload

from semistream.errors import OptionError
from semistream.master.arguments import master_folder
from semistream.master.database.address import is_url
from semistream.master.files.master import FileMaster
from semistream.master.files.reader import reader_kind
from semistream.master.protocol import Master
from semistream.master.snapshots.snapshots import find_snapshot, missing_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

__all__ = ["as_master", "open_master", "path_of"]


# Options are those of a table in a database, or of files.
@overload
def open_master(
    path: os.PathLike[str],
    read: str | None = ...,
    **options: Any,  # noqa: ANN401
) -> FileMaster: ...
@overload
def open_master(path: str | os.PathLike[str], read: str | None = ..., **options: Any) -> Master: ...  # noqa: ANN401
def open_master(
    path: str | os.PathLike[str],
    read: str | None = None,
    **options: Any,
) -> Master:
    """Open a master table: the files of a build, or a table in a database.

    Parameters
    ----------
    path
        The folder that `build_master` wrote; or the URL of a database, as
        ``"postgresql://user@host/database"``, ``"mysql://…"`` or ``"mariadb://…"``.
    read
        How files are read. ``"mapped"``, the default: memory-mapped, the operating system's page
        cache helps; if someone cuts the file meanwhile (no build does), the operating system ends
        the process. ``"direct"``: real reads (``O_DIRECT``) into the operator's own buffers,
        nothing is kept outside its budget.
    **options
        For files ``snapshot``: the id of one that is still there, of its files, or the beginning
        of either (``semistream master snapshots`` lists them). For a database, those of
        `semistream.master.database.open.open_database`: ``table``, ``key``, ``select``,
        ``where``, ``ttl``, ``absent_ttl``, ``password_env``, ``retry``, ``feed``.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2]}), path, key="id")
    >>> ss.open_master(path).rows
    2
    """
    if not is_url(path):
        folder = master_folder(path)
        _check_options(options, ["snapshot"], folder)
        return _open_files(folder, read or "mapped", **options)
    if read is not None:
        msg = f"read={read!r} is for files; a database is asked by queries: leave it out"
        raise OptionError(msg)
    _check_options(options, _database_options(), None)
    if missing := [name for name in ("table", "key") if name not in options]:
        msg = (
            f"{' and '.join(missing)} must be given for a database: open_master(url, "
            "table='products', key='id')"
        )
        raise OptionError(msg)
    return _database_opener()(str(path), **options)


def _open_files(folder: Path, read: str, snapshot: str | None = None) -> FileMaster:
    reader_kind(read)  # a wrong name is refused before any file is looked at
    if snapshot is None:
        return FileMaster.current(folder, read)
    try:
        return FileMaster.at(folder, find_snapshot(folder, snapshot), read, chosen=True)
    except FileNotFoundError as error:
        raise missing_snapshot(folder, snapshot) from error


def _database_opener() -> Callable[..., Master]:
    from semistream.master.database.open import open_database  # noqa: PLC0415 - few need it

    return open_database


def _database_options() -> list[str]:
    return list(signature(_database_opener()).parameters)[1:]


def _check_options(options: Iterable[str], known: Sequence[str], folder: Path | None) -> None:
    for name in options:
        if name in known:
            continue
        if folder is not None and name in _database_options():
            msg = f"{name}= is for a table in a database, {folder} is a folder of files"
            raise OptionError(msg)
        if folder is None and name == "snapshot":
            msg = "snapshot= is for a folder of files; a table in a database has no snapshots"
            raise OptionError(msg)
        raise OptionError.unknown("option", name, known)


def as_master(master: object, read: str = "mapped") -> Master:
    """Return a master, or open the one at this path; refuse anything else."""
    if isinstance(master, Master):
        return master
    return open_master(path_of(master), None if is_url(master) else read)


def path_of(master: object) -> str | os.PathLike[str]:
    """Return the path of a master; refuse what is none."""
    if isinstance(master, str | os.PathLike):
        return master
    msg = (
        f"master={master!r} is no master table; give the path of one that build_master wrote, or "
        "what open_master returns"
    )
    raise OptionError(msg)
