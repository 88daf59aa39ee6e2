"""Locations of tables: the file system of each, and how messages show it without secrets."""

from __future__ import annotations

import os
import re
from typing import Any

import pyarrow as pa
import pyarrow.fs

from semistream.errors import OptionError

__all__ = ["hide_secrets", "locate", "show_source", "unreachable_error", "without_secrets"]

# A port is no password. A password with a slash is not legal, and is taken out all the same.
_LOGIN = re.compile(r"\b([a-z][\w+.-]*://)([^/@:\s]*):(?!\d+/)(?:[^/\s]*|[^@\s]*)@", re.IGNORECASE)
_SECRET = re.compile(r"([?&](?:client_secret|sig)=)[^&\s]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Take passwords, and the users who have them, out of a URI or a message with some.

    The name that Azure's URIs have there is no user but the container.

    Examples
    --------
    >>> without_secrets("s3://KEY:SECRET@bucket/table?region=eu-west-1")
    's3://bucket/table?region=eu-west-1'
    >>> without_secrets("abfss://container:SECRET@account.dfs.core.windows.net/table")
    'abfss://container@account.dfs.core.windows.net/table'
    """

    def kept(login: re.Match[str]) -> str:
        container = login[1].lower().startswith("abfs") and login[2]
        return f"{login[1]}{container}@" if container else login[1]

    return _SECRET.sub(r"\1", _LOGIN.sub(kept, text))


def hide_secrets(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Return a value of JSON with secrets taken out of its strings, nested ones too.

    Examples
    --------
    >>> hide_secrets({"path": "s3://KEY:SECRET@bucket/table", "columns": ["key"], "rows": 5})
    {'path': 's3://bucket/table', 'columns': ['key'], 'rows': 5}
    """
    if isinstance(value, dict):
        return {name: hide_secrets(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_secrets(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value


def show_source(source: object) -> str:
    """Return a source as messages show it."""
    return without_secrets(f"source={source!r}")


def unreachable_error(source: str, error: Exception) -> OptionError:
    """Return the error for a place that cannot be looked at."""
    return OptionError(f"{show_source(source)} cannot be reached: {without_secrets(str(error))}")


def locate(source: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system of a place, and its path there."""
    if "://" not in source:
        return pyarrow.fs.LocalFileSystem(), os.fspath(source)
    try:
        system, path = pyarrow.fs.FileSystem.from_uri(source)
    except (pa.ArrowException, OSError) as error:
        raise unreachable_error(source, error) from error
    return system, path
