"""The settings of an experiment: what is run with what, and what is run in turn with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from papers.experiment import Experiment, Series
from papers.judge.verdict import shown

_BESIDE = ("adaptive",)
_DEFAULT_BUFFER = 0.93 * 2**20  # the MESHJOIN paper's
_TOGETHER = frozenset({"curve", "reads", "tasks"})
"""Kinds whose claims compare the points of a line: these are measured in turn, too."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One run: a point of a line."""

    x: float
    """As the paper has it, whatever the scale."""
    label: str
    series: Series
    rows: int
    memory: int
    """Bytes, at the scale; 0 where it is looked for."""
    exponent: float
    rate: float = 0.0
    knobs: tuple[tuple[str, float], ...] = ()
    """Parts of the memory that are settings: k, l, or the disk buffer at the scale."""


@dataclass(frozen=True)
class Group:
    """Cells that are measured in turn, so that noise hits all alike."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def rows(self) -> int:
        """Rows of R, the same in all."""
        return self.cells[0].rows

    @property
    def exponent(self) -> float:
        """The skew, the same in all."""
        return self.cells[0].exponent


def groups(experiment: Experiment, factor: float) -> Iterator[Group]:
    """Return the groups of an experiment: a point each, or a line whose points are compared.

    Examples
    --------
    >>> from papers.reading import experiments
    >>> name = "x-hybridjoin/figure-3a"
    >>> first, *_ = groups(experiments(name)[name], factor=0.1)
    >>> first.name, first.rows, [cell.label for cell in first.cells][-2:]
    ('R = 0.5M', 50000, ['x-hybridjoin', 'adaptive'])
    """
    lines = experiment.lines.values if experiment.lines else (None,)
    for line in lines:
        points = [_cells(experiment, factor, x, line) for x in experiment.values]
        if experiment.kind in _TOGETHER:
            once = () if experiment.kind == "tasks" else _BESIDE
            yield Group(_named(experiment, line), _curve(points, once))
        else:
            for x, cells in zip(experiment.values, points, strict=True):
                yield Group(shown(experiment.vary, x), tuple(cells))


def _named(experiment: Experiment, line: float | None) -> str:
    return shown(experiment.lines.vary, line) if experiment.lines and line else "all"


def _curve(points: list[list[Cell]], once: tuple[str, ...]) -> tuple[Cell, ...]:
    """Leave out repetitions of what has no such part of memory: it is run once."""
    beside = [cell for cell in points[0] if cell.series.algorithm in once]
    swept = [cell for cells in points for cell in cells if cell.series.algorithm not in once]
    return (*swept, *beside)


def _cells(experiment: Experiment, factor: float, x: float, line: float | None) -> list[Cell]:
    settings = {experiment.vary: x}
    suffix = ""
    if experiment.lines and line is not None:
        settings[experiment.lines.vary] = line
        suffix = f", {shown(experiment.lines.vary, line)}"
    rows = round(settings.get("rows", experiment.data.rows) * factor)
    memory = _memory(experiment, settings, rows, factor)
    return [
        Cell(
            x=x,
            label=f"{label}{suffix}",
            series=series,
            rows=rows,
            memory=memory,
            exponent=settings.get("exponent", experiment.data.exponent),
            rate=settings.get("rate", experiment.rate or 0.0),
            knobs=_knobs(settings, series, factor),
        )
        for label, series in experiment.series.items()
    ]


def _memory(experiment: Experiment, settings: dict[str, float], rows: int, factor: float) -> int:
    share = settings.get("share", experiment.share)
    if share is not None:
        return int(share * rows * experiment.data.row_bytes)
    return int(settings.get("memory", experiment.memory or 0) * factor)


def _knobs(
    settings: dict[str, float], series: Series, factor: float
) -> tuple[tuple[str, float], ...]:
    """Pages stay as many as they are; bytes are at the scale, as memory is."""
    if series.algorithm in _BESIDE:
        return ()
    if series.options.get("buffer") == "default":
        settings = {**settings, "buffer": _DEFAULT_BUFFER}
    sizes = {"buffer": factor, "k": 1.0, "l": 1.0}
    return tuple((name, settings[name] * by) for name, by in sizes.items() if name in settings)
