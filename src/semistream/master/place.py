"""Where a table lies: how it is reached, and how it is named without secrets."""

from __future__ import annotations

import os
import re
from typing import Any

import pyarrow as pa
import pyarrow.fs

from semistream.errors import OptionError

__all__ = ["hidden", "located", "named", "unreachable", "without_secrets"]

# A port is no password. One with a slash, which is not legal there, is taken out all the same.
_LOGIN = re.compile(r"\b([a-z][\w+.-]*://)([^/@:\s]*):(?!\d+/)(?:[^/\s]*|[^@\s]*)@", re.IGNORECASE)
_SECRET = re.compile(r"([?&](?:client_secret|sig)=)[^&\s]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Give a URI, or a message with some, without passwords, and without the users who have them.

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


def hidden(told: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Give values as they are, also those in lists and mappings, but texts without secrets.

    Examples
    --------
    >>> hidden({"path": "s3://KEY:SECRET@bucket/table", "columns": ["key"], "rows": 5})
    {'path': 's3://bucket/table', 'columns': ['key'], 'rows': 5}
    """
    if isinstance(told, dict):
        return {name: hidden(value) for name, value in told.items()}
    if isinstance(told, (list, tuple)):
        return [hidden(value) for value in told]
    return without_secrets(told) if isinstance(told, str) else told


def named(source: object) -> str:
    """Give a source as messages name it."""
    return without_secrets(f"source={source!r}")


def unreachable(source: str, error: Exception) -> OptionError:
    """Give the error for a place that cannot be looked at."""
    return OptionError(f"{named(source)} cannot be reached: {without_secrets(str(error))}")


def located(source: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Give the file system of a place, and its path there."""
    if "://" not in source:
        return pyarrow.fs.LocalFileSystem(), os.fspath(source)
    try:
        system, path = pyarrow.fs.FileSystem.from_uri(source)
    except (pa.ArrowException, OSError) as error:
        raise unreachable(source, error) from error
    return system, path
