"""What the test tools need beside semistream itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["needs"]


def needs(module: str) -> Any:  # noqa: ANN401 - a module
    """Import what the extra ``testing`` brings, or say how to get it.

    Examples
    --------
    >>> needs("duckdb").__name__
    'duckdb'
    >>> needs("no_such_module")
    Traceback (most recent call last):
    ImportError: semistream.testing needs no_such_module: pip install 'semistream[testing]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        msg = f"semistream.testing needs {module}: pip install 'semistream[testing]'"
        raise ImportError(msg) from error
