"""Arguments that builds, syncs and opening have in common, checked before anything is touched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.errors import OptionError
from semistream.master.place import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["callback", "master_folder", "yes_or_no"]

# One slash: a `pathlib.Path` of a URL has lost the other. The absolute path of a folder of such a
# name has none.
_URL = re.compile(r"[A-Za-z][\w+.-]*:/")


def master_folder(path: object) -> Path:
    """Return the folder of a master on a file system of this machine; refuse what is none.

    Examples
    --------
    >>> master_folder("products.master").name
    'products.master'
    >>> master_folder("s3://KEY:SECRET@bucket/products")
    Traceback (most recent call last):
    semistream.errors.OptionError: path='s3://bucket/products' is a URL; ...
    """
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        msg = f"path={path!r} is a {type(path).__name__}; give a master's folder as str or Path"
        raise OptionError(msg)
    text = str(path)
    if _URL.match(text):
        shown = without_secrets(text if "://" in text else text.replace(":/", "://", 1))
        msg = (
            f"path={shown!r} is a URL; a master is a folder on a file system that is mounted here: "
            "give its path. Of URLs, open_master takes those of databases (postgresql://, "
            "mysql://, mariadb://), and enrich, with localize=True, those of object stores"
        )
        raise OptionError(msg)
    if not text or "\0" in text:
        msg = f"path={text!r} cannot be the name of a folder; give a master's folder"
        raise OptionError(msg)
    return Path(path)


def callback(value: Any, what: str) -> Callable[[Any], None]:  # noqa: ANN401 - what a caller gives
    """Return a callback; one that does nothing for None."""
    if value is None:
        return lambda _: None
    if not callable(value):
        msg = f"{what}={value!r} cannot be called; give a function, or leave it out"
        raise OptionError(msg)
    function: Callable[[Any], None] = value
    return function


def yes_or_no(value: object, what: str) -> bool:
    """Return a truth value; refuse others: a string such as ``"no"`` would count as true."""
    if not isinstance(value, bool | np.bool_):
        msg = f"{what}={value!r} is neither True nor False"
        raise OptionError(msg)
    return bool(value)
