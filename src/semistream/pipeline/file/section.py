"""What sections of a YAML file have in common: a field is a key, its kind says what it takes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from semistream.values import SCALAR, TEXT, IllegalValueError, Kind, ValuePath, mapping, read_text

if TYPE_CHECKING:
    from pydantic import ValidationInfo

__all__ = ["PATH", "Conflicts", "Options", "Section", "absolute_path"]

Options = Annotated[Mapping[str, Any], mapping(SCALAR)]
Conflicts = Iterator[tuple[str | ValuePath, str]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a file."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "use_attribute_docstrings": True,
    }

    def conflicts(self) -> Conflicts:
        """Yield what is wrong between the section's own fields: a field and a message."""
        yield from ()

    def __post_init__(self) -> None:
        problems = [
            (where if isinstance(where, tuple) else (where,), message)
            for where, message in self.conflicts()
        ]
        if problems:
            raise IllegalValueError(*problems)


def _read_path(value: object, info: "ValidationInfo[Any]") -> str:
    """Read a path; relative ones are to the folder of the file."""
    return absolute_path(read_text(value), info.context["folder"])


def absolute_path(path: str, folder: Path) -> str:
    """Return a URL as it is, and a path as seen from ``folder``."""
    if re.match(r"file:|.*://", path):
        return path
    return str(folder / Path(path).expanduser())


PATH = Kind(_read_path, TEXT.schema, by_context=True)
