"""Kinds of tables of files, and how a source is recognised."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.fs

from semistream.errors import OptionError
from semistream.master.lake.parquet import ParquetFiles
from semistream.master.place import locate, show_source, unreachable_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.master.lake.table import LakeTable

__all__ = ["find_table", "is_table"]

_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}
_FOLDERS = {"_delta_log": "delta", "metadata": "iceberg"}
_CLASSES = {"delta": ("deltalake", "DeltaTable"), "iceberg": ("pyiceberg.table", "Table")}


def is_table(source: object) -> bool:
    """Return whether a source is a table of files: its location, or a library's object for it."""
    return isinstance(source, str | os.PathLike) or _kind_of_object(source) is not None


def find_table(
    source: Any,  # noqa: ANN401 - as is_table takes it
    version: int | None = None,
    columns: Sequence[str] | None = None,
) -> LakeTable:
    """Open a table at a version, the newest by default, to read some of its columns."""
    place = os.fspath(source) if isinstance(source, str | os.PathLike) else source
    kind = _kind_of_object(source) or _kind_of_place(place)
    names = None if columns is None else tuple(columns)
    if kind == "parquet":
        if version is not None:
            msg = (
                f"version={version}: {show_source(place)} holds Parquet files without versions; a "
                "Delta or Iceberg table has them. Leave the version out to read what is there now"
            )
            raise OptionError(msg)
        return ParquetFiles.open(place, names)
    try:
        if kind == "delta":
            from semistream.master.lake.delta import Delta  # noqa: PLC0415 - optional

            return Delta.open(place, version, names)
        from semistream.master.lake.iceberg import Iceberg  # noqa: PLC0415 - optional

        return Iceberg.open(place, version, names)
    except ModuleNotFoundError as error:
        library = _LIBRARIES[kind]
        if error.name is None or error.name.split(".")[0] != library:
            raise
        msg = f"{show_source(place)} needs {library}: pip install 'semistream[lakehouse]'"
        raise OptionError(msg) from error


def _kind_of_object(source: object) -> str | None:
    for kind, (module, name) in _CLASSES.items():
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(source, getattr(loaded, name)):
            return kind
    return None


def _kind_of_place(place: str) -> str:
    if place.startswith("iceberg://") or place.endswith(".metadata.json"):
        return "iceberg"
    system, path = locate(place)
    try:
        infos = system.get_file_info([f"{path.rstrip('/')}/{name}" for name in _FOLDERS])
    except OSError as error:  # taken for mere files, a table would have its deleted rows again
        raise unreachable_error(place, error) from error
    names = [info.base_name for info in infos if info.type is pyarrow.fs.FileType.Directory]
    return _FOLDERS[names[0]] if names else "parquet"
