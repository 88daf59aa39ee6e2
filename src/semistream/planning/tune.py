"""Tune an algorithm's parts of the memory, or the master's page size, by simulation."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.algorithms import algorithms
from semistream.arrow.memory import take_rows
from semistream.arrow.types import plain_type
from semistream.engine.plan import Task
from semistream.errors import BudgetError, OptionError
from semistream.master.build.build import build_from_rows
from semistream.planning.planner import JoinPredictor
from semistream.planning.view import take_view
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from semistream.planning.curve import Point
    from semistream.planning.planner import Problem
    from semistream.planning.view import View

__all__ = ["KNOBS", "Setting", "knobs_of", "tune", "tune_pages"]

_LEAST_PAGE, _MOST_PAGE = 16 << 10, 1 << 20
_SHARES = (0.02, 0.96)  # of the memory that a cache may have
_MOST_K = 16  # pages of one read: beyond, transfer outweighs what a read costs by itself


@dataclass(frozen=True)
class Setting:
    """Options of an algorithm, or a page size, and what they give."""

    options: Mapping[str, Any]
    point: Point

    def __str__(self) -> str:
        return ", ".join(f"{name}={_shown(name, value)}" for name, value in self.options.items())


def _pages(task: Task, share: float) -> int:
    """Return how many pages a share of what can be divided has room for."""
    free = task.memory - sum(task.fixed(1).values()) - task.least_window
    return max(1, min(int(share * free) // max(1, task.page_bytes), task.spec.master.pages))


def _counts(most: int, points: int) -> list[int]:
    return sorted({int(n) for n in np.rint(np.geomspace(1, max(1, most), points))})


def _buffer(task: Task, points: int) -> list[int]:
    # Half of the memory is more than any optimum: the rate falls with what the window loses.
    return [n * task.page_bytes for n in _counts(_pages(task, 0.5), points)]


def _cache(task: Task, points: int) -> list[float]:  # noqa: ARG001 - as the others
    return [round(float(share), 3) for share in np.linspace(*_SHARES, points)]


KNOBS: dict[str, dict[str, Callable[[Task, int], Iterable[float]]]] = {
    "meshjoin": {"buffer": _buffer},
    "r-meshjoin": {"buffer": _buffer},
    "ssbj": {"buffer": _buffer},
    "tuned-x-hybridjoin": {
        "k": lambda task, points: _counts(min(_MOST_K, _pages(task, 0.5)), points),
        "l": lambda task, points: _counts(_pages(task, 0.9), points),
    },
    "optimised-x-hybridjoin": {"l": lambda task, points: _counts(_pages(task, 0.5), points)},
    "cachejoin": {"cache": _cache},
    "partition-join": {"cache": _cache},
    "ssij": {"cache": _cache},
    "derakhshan": {"cache": _cache},
}
"""What can be tuned of each algorithm: the values to try, by option."""


def knobs_of(algorithm: str) -> dict[str, Callable[[Task, int], Iterable[float]]]:
    """Return an algorithm's knobs; one without any is an error that says what can be tuned.

    Examples
    --------
    >>> list(knobs_of("tuned-x-hybridjoin"))
    ['k', 'l']
    >>> knobs_of("hybridjoin")
    Traceback (most recent call last):
    semistream.errors.OptionError: 'hybridjoin' has nothing to tune but the page size ...
    """
    if algorithm not in algorithms():
        raise OptionError.unknown("algorithm", algorithm, algorithms())
    if algorithm not in KNOBS:
        msg = (
            f"{algorithm!r} has nothing to tune but the page size (--pages); of the memory's parts "
            f"these have: {', '.join(KNOBS)}"
        )
        raise OptionError(msg)
    return KNOBS[algorithm]


def tune(problem: Problem, memory: int, points: int = 8) -> tuple[Setting, ...]:
    """Simulate the values of an algorithm's knobs within a budget; the best comes first."""
    knobs, task = knobs_of(problem.algorithm), Task.of(problem.spec, memory, None)
    values = [knob(task, points if len(knobs) == 1 else points // 2 + 1) for knob in knobs.values()]
    choices = (dict(zip(knobs, chosen, strict=True)) for chosen in product(*values))
    tried = ((options, replace(problem, options=options)) for options in choices)
    return _best_first(tried, memory)


def tune_pages(problem: Problem, memory: int) -> tuple[Setting, ...]:
    """Simulate the master with pages of other sizes; the best comes first.

    The rows of the view are built anew with each size, in a temporary folder: 64 MB at most.
    """
    sizes = [1 << n for n in range(_LEAST_PAGE.bit_length() - 1, _MOST_PAGE.bit_length())]
    return _best_first(
        ((({"page_bytes": size}), _repaged(problem, size)) for size in sizes), memory
    )


def _best_first(
    tried: Iterable[tuple[dict[str, Any], Problem]], memory: int
) -> tuple[Setting, ...]:
    found, refused = [], None
    for options, problem in tried:
        try:
            found.append(Setting(options, JoinPredictor(problem).predict(memory)))
        except BudgetError as error:
            refused = error
    if not found:
        assert refused is not None  # noqa: S101 - each knob has a value
        raise refused
    return tuple(sorted(found, key=lambda setting: -setting.point.rate))


def _repaged(problem: Problem, page_bytes: int) -> Problem:
    view, spec = problem.view, problem.spec
    with tempfile.TemporaryDirectory() as folder:
        built = build_from_rows(
            _rows(view),
            Path(folder) / "master",
            list(view.key),
            version=None,
            columns=None,
            page_bytes=page_bytes,
            with_filter=view.manifest.filter_words > 0,
            memory="256MB",
            progress=lambda _: None,
        )
        small = replace(take_view(built, every=1), read=problem.master.read)
    whole = _magnified(small, view.stride)
    return replace(
        problem,
        view=replace(small, stride=view.stride, whole=None),
        master=whole,
        spec=replace(spec, master=whole),
    )


def _magnified(view: View, times: int) -> View:
    """Return a master of so many times the rows and pages of a view, to plan with, not to read."""
    s = view.statistics
    grown = {
        name: getattr(s, name) * times for name in ("rows", "parts", "pages", "bytes", "values")
    }
    manifest = replace(view.manifest, filter_words=view.manifest.filter_words * times)
    return replace(view, manifest=manifest, statistics=replace(s, **grown))


def _rows(view: View) -> pa.RecordBatchReader:
    """Return a view's rows in plain types: what another master can be built from."""
    kinds = {field.name: plain_type(field.type) for field in view.schema}
    if view.keys.exact:
        kinds[view.key[0]] = view.keys.types[0]
    schema = pa.schema(list(kinds.items()))

    def column(page: pa.RecordBatch, name: str) -> pa.Array:
        if view.keys.exact and name == view.key[0]:
            return view.keys.decode(page.column(0))
        return page.column(name)

    def batches() -> Iterator[pa.RecordBatch]:
        reader = view.reader()
        for part in range(view.statistics.parts):
            page = reader.load(part, 1)[0]
            page = take_rows(page, np.arange(page.num_rows))  # the reader's memory is its own
            yield pa.RecordBatch.from_arrays([column(page, n) for n in schema.names], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _shown(option: str, value: float) -> str:
    """Write a knob's value as people do.

    Examples
    --------
    >>> _shown("buffer", 262144), _shown("cache", 0.25), _shown("l", 7)
    ('256 KB', '25.0%', '7')
    """
    if option in {"buffer", "page_bytes"}:
        return format_bytes(value)
    return f"{value:.1%}" if option == "cache" else str(value)
