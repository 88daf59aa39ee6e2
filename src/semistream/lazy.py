"""Packages whose names are imported on first use, so that to import them stays cheap."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    ``homes`` maps each name to the module that defines it. No name may be that of a module of the
    package: importing that module would put it in the name's place.
    """

    def resolve(name: str) -> Any:  # noqa: ANN401 - whatever has this name
        if name not in homes:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=sys.modules[package])
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # so that it is resolved once
        return value

    return resolve, lambda: sorted({*vars(sys.modules[package]), *homes})
