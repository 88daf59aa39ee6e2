"""Kinds of values that a file can give: how each is read, and what its JSON Schema is.

A kind is put into an annotation, as ``memory: Annotated[int, SIZE]``. Pydantic finds there what it
asks of a type; this module itself does not need it, so that options are values without it, too.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError
from semistream.units import parse_bytes, parse_count, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "FLAG",
    "FLAG_OR_SIZE",
    "KEY",
    "SCALAR",
    "SECONDS",
    "SIZE",
    "TEXT",
    "IllegalValueError",
    "Kind",
    "ValuePath",
    "choice",
    "count",
    "mapping",
    "names",
    "nearest",
    "number",
    "read_each",
    "read_text",
    "unknown_word",
]

ValuePath = tuple[str | int, ...]
"""How a value is reached from the one around it: keys, and numbers in lists."""
VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""The JSON Schema of a value that comes from the environment."""


class IllegalValueError(OptionError):
    """A value of a file is not legal.

    Parameters
    ----------
    problems
        A message for each place within the value; it follows the place's name, and ``{shown}`` in
        it stands for the value as the file has it: messages show no variable's value.
    """

    def __init__(self, *problems: tuple[ValuePath, str]) -> None:
        super().__init__("; ".join(message for _, message in problems))
        self.problems = problems

    @classmethod
    def of(cls, message: str) -> IllegalValueError:
        """Make one of a single message about the whole value."""
        return cls(((), message))


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of value: what reads it, and the JSON Schema of what may be written."""

    read: Callable[..., Any]
    """Return the value; raise `IllegalValueError`."""
    schema: Callable[[], Mapping[str, Any]]
    by_context: bool = False
    """Whether ``read`` also takes pydantic's ValidationInfo: fields before it, and a context."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:  # noqa: ANN401
        from pydantic_core import core_schema  # noqa: PLC0415 - only files need it

        if self.by_context:
            return core_schema.with_info_plain_validator_function(self.read)
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: object, handler: object) -> dict[str, Any]:
        return dict(self.schema())


def nearest(word: object, words: Iterable[str]) -> str:
    """Return the question whether the nearest right word was meant, or nothing."""
    near = difflib.get_close_matches(str(word), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown_word(word: object, words: Iterable[str]) -> str:
    """Return the message for a word that is not known."""
    legal = f"choose one of: {', '.join(sorted(words))}.{nearest(word, words)}"
    return f"{{shown}} is not known; {legal}"


def read_text(value: object) -> str:
    """Read text that is not empty."""
    if isinstance(value, bool | int | float):
        raise IllegalValueError.of("must be text, not {shown}; if it is meant, write it in quotes")
    if not isinstance(value, str) or not value.strip():
        raise IllegalValueError.of("must be text, not {shown}")
    return value


def _read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise IllegalValueError.of("must be true or false, not {shown}")
    return value


def _read_scalar(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise IllegalValueError.of("must be a single value, not {shown}")
    return value


def _parsed(parse: Callable[[Any], Any], must: str, types: list[str], example: object) -> Kind:
    """Return the kind of what a function of `units` parses."""

    def read(value: object) -> object:
        try:
            return parse(value)
        except OptionError:
            raise IllegalValueError.of(f"must be {must}, not {{shown}}") from None

    return Kind(read, lambda: {"type": types, "examples": [example]})


def _flag_or_size(value: bool | int | str) -> bool | int:
    return value if isinstance(value, bool) else parse_bytes(value)


_NUMBER = ["number", "string"]
TEXT = Kind(read_text, lambda: {"type": "string", "minLength": 1})
SCALAR = Kind(_read_scalar, lambda: {"type": ["string", "number", "boolean"]})
FLAG = Kind(_read_flag, lambda: {"anyOf": [{"type": "boolean"}, VARIABLE]})
SIZE = _parsed(parse_bytes, "a size in bytes, such as 64MB", _NUMBER, "64MB")
FLAG_OR_SIZE = _parsed(
    _flag_or_size, "true, false or a size as 50GB", ["boolean", *_NUMBER], "50GB"
)
SECONDS = _parsed(parse_seconds, "a time, such as 30 (seconds), 10m or 2h", _NUMBER, "10m")


def number(least: float, most: float) -> Kind:
    """Return the kind of numbers within limits."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise IllegalValueError.of("must be a number, not {shown}")
        if not least <= value <= most:
            raise IllegalValueError.of(f"must be from {least:g} to {most:g}, not {{shown}}")
        return value

    limits = {"type": "number", "minimum": least, "maximum": most}
    return Kind(read, lambda: {"anyOf": [limits, VARIABLE]})


def count(least: int = 1) -> Kind:
    """Return the kind of whole numbers, such as 2000000 or 2M."""

    def parse(value: int | str) -> int:
        is_zero = least == 0 and value == 0 and not isinstance(value, bool)
        return 0 if is_zero else parse_count(value)

    must = f"a whole number of at least {least}, such as 1000 or 2M"
    return _parsed(parse, must, ["integer", "string"], "2M")


def choice(words: Callable[[], Iterable[str]] | Iterable[str]) -> Kind:
    """Return the kind of a few words; a function of them where there may be more later."""

    def known() -> list[str]:
        return sorted(set(words() if callable(words) else words))

    def read(value: object) -> str:
        word = "null" if value is None else value  # what YAML takes the word for
        if not isinstance(word, str) or word not in known():
            raise IllegalValueError.of(unknown_word(word, known()))
        return word

    return Kind(read, lambda: {"anyOf": [{"enum": known()}, VARIABLE]})


def read_each(items: Iterable[tuple[str | int, Any]], read: Callable[[Any], Any]) -> list[Any]:
    """Read all items, each at its place within the value, so that all mistakes are found."""
    values: list[Any] = []
    problems: list[tuple[ValuePath, str]] = []
    for place, item in items:
        try:
            values.append(read(item))
        except IllegalValueError as error:
            problems += [((place, *path), message) for path, message in error.problems]
    if problems:
        raise IllegalValueError(*problems)
    return values


def names(item: Kind = TEXT) -> Kind:
    """Return the kind of lists of names; one alone needs no brackets."""

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            return (item.read(value),)
        words = read_each(enumerate(value), item.read)
        for i, word in enumerate(words):
            if word in words[:i]:
                raise IllegalValueError.of(f"names {word!r} twice")
        return tuple(words)

    return Kind(read, lambda: {"anyOf": [item.schema(), {"type": "array", "items": item.schema()}]})


def mapping(item: Kind) -> Kind:
    """Return the kind of mappings from names to values."""

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise IllegalValueError.of("must be a mapping, as {name: value}, not {shown}")
        return dict(zip(value, read_each(value.items(), item.read), strict=True))

    return Kind(read, lambda: {"type": "object", "additionalProperties": item.schema()})


def _read_key(value: object) -> tuple[str, ...] | dict[str, str]:
    if isinstance(value, dict) and value:
        pairs: dict[str, str] = mapping(TEXT).read(value)
        return pairs
    columns: tuple[str, ...] = names().read(value)
    if not columns:
        raise IllegalValueError.of("is empty; name the key's columns")
    return columns


KEY = Kind(_read_key, lambda: {"anyOf": [*names().schema()["anyOf"], mapping(TEXT).schema()]})
"""What a join is on: a column, a list of them, or a mapping stream column: master column."""
