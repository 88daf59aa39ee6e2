"""YAML files against the sections that describe them: every mistake with its line."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from semistream.errors import OptionError
from semistream.pipeline.file.errors import PipelineError, Problem
from semistream.pipeline.file.positions import Document, parse, where
from semistream.pipeline.file.section import Section
from semistream.values import IllegalValueError, ValuePath, unknown_word

__all__ = ["read_yaml"]

T = TypeVar("T")


def read_yaml(
    kind: type[T],
    name: str,
    text: str,
    environment: Mapping[str, str] = os.environ,
    context: Mapping[str, Any] | None = None,
    error: type[PipelineError] = PipelineError,
) -> tuple[T, Document]:
    """Read a file's text as a section; return that, and where its values are.

    Parameters
    ----------
    kind
        A section, or a mapping of sections.
    name
        The file's name, for messages.
    environment
        The variables that the text may name.
    context
        What the section's kinds of values may need.
    error
        What is raised, with all mistakes.
    """
    try:
        document = parse(text, environment)
    except PipelineError as syntax:
        raise error(name, syntax.problems) from None
    problems = list(document.problems)
    try:
        section: T = _adapter(kind).validate_python(  # type: ignore[arg-type] # a type is hashable
            document.data, context=context
        )
    except ValidationError as invalid:
        # A value that has not been read, for want of a variable, is not wrong twice.
        known = {problem.mark for problem in problems}
        details = invalid.errors(include_url=False)
        more = (problem for each in details for problem in _problems(kind, document, each))
        problems += [problem for problem in more if problem.mark not in known]
    if problems:
        raise error(name, problems)
    return section, document


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type
    """Return the validator of a kind: to make one takes longer than to read a file with it."""
    return TypeAdapter(kind)


def _problems(root: object, document: Document, error: ErrorDetails) -> Iterator[Problem]:
    """Yield the problems of one error of pydantic's; they never show a variable's value."""
    path, section, kind = _locate(root, document, error["loc"])
    place, parent = document.place(path), path[:-1]
    if error["type"] == "missing":
        yield Problem(document.place(parent).key, f"{where(path)} is missing")
    elif error["type"] == "unexpected_keyword_argument":
        what = f"{where(parent)}: key" if parent else "key"
        yield Problem(place.key, str(OptionError.unknown(what, path[-1], _keys(section))))
    elif error["type"] == "value_error":
        illegal = error["ctx"]["error"]
        assert isinstance(illegal, IllegalValueError)  # noqa: S101 - no kind raises another
        for within, message in illegal.problems:
            yield _illegal(document, path, within, message, _is_section(kind))
    elif get_origin(kind) is UnionType:  # of sources, or of sinks
        kinds = [each.kind for each in get_args(kind)]
        if (*path, "kind") in document.places:
            message = unknown_word(error["ctx"]["tag"], kinds)
            yield _illegal(document, (*path, "kind"), (), message)
        else:
            choices = f"choose one of: {', '.join(sorted(kinds))}"
            yield Problem(place.key, f"{where((*path, 'kind'))} is missing; {choices}")
    else:
        keys = f"a mapping with {', '.join(_keys(kind))}" if _is_section(kind) else "a mapping"
        yield Problem(
            place.mark, f"{where(path) or 'the file'} must be {keys}; it is {place.shown}"
        )


def _illegal(
    document: Document, path: ValuePath, within: ValuePath, message: str, of_section: bool = False
) -> Problem:
    """Return the problem of a value; one of a section may be that a value is not given."""
    full = (*path, *within)
    place = document.place(full)
    by_key = of_section and (full not in document.places or place.shown == "a mapping")
    mark = place.key if by_key else place.mark
    space = "" if message.startswith(":") else " "
    return Problem(mark, f"{where(full)}{space}{message.replace('{shown}', place.shown)}")


def _locate(
    kind: Any,  # noqa: ANN401 - any type
    document: Document,
    location: Sequence[str | int],
) -> tuple[ValuePath, Any, Any]:
    """Return where in the file an error is, the section around it, and the kind of value there.

    Pydantic also names which kind of source or sink was chosen, which is no key of the file.
    """
    path: ValuePath = ()
    section = kind
    for step in location:
        if _is_section(kind):
            section, kind = kind, _hints(kind).get(str(step))
        elif get_origin(kind) is UnionType:
            kind = next(each for each in get_args(kind) if each.kind == step)
            continue
        else:  # a tuple of sections, or a mapping of them
            kind = next(each for each in reversed(get_args(kind)) if each is not Ellipsis)
            if (*path, step) not in document.places:
                continue  # one alone, without a list
        path = (*path, step)
    return path, section, kind


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _hints(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    """Return the types of a section's fields; of those that may be left out the other one."""
    return {
        name: get_args(hint)[0] if NoneType in get_args(hint) else hint
        for name, hint in get_type_hints(section).items()
    }


def _keys(section: Any) -> list[str]:  # noqa: ANN401 - a dataclass
    """Return the keys of a section; first those that it must have."""
    required = [each for each in fields(section) if each.default is each.default_factory is MISSING]
    return list(dict.fromkeys(each.name for each in (*required, *fields(section))))
