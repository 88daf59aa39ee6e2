"""A tuned setting as tables and lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.algorithms.published.meshjoin import tuned_buffer
from semistream.cost.sheet import Sheet
from semistream.cost.spread import Spread, ratio, spread
from semistream.cost.tuning.knobs import shown
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Record = dict[str, Any]

__all__ = ["curve_of", "curve_sheets", "options_text", "summary_lines", "untuned_loss"]


def options_text(options: Mapping[str, Any]) -> str:
    """Write a choice of the knobs.

    Examples
    --------
    >>> options_text({"k": 2, "l": 5}), options_text({"buffer": 131072}), options_text({})
    ('k 2, l 5', '128 KB', 'untuned')
    """
    if len(options) == 1:
        ((name, value),) = options.items()
        return shown(name, value)
    return ", ".join(f"{name} {shown(name, value)}" for name, value in options.items()) or "untuned"


def untuned_loss(cell: Record) -> float:
    """Return the share of the measured optimum's rate that is lost without tuning."""
    points, best = cell["measured"]["points"], cell["measured"]["optimum"]
    untuned = points[cell["measured"]["untuned"]]
    return 1 - ratio(untuned["samples"], points[best]["samples"]).middle


class Value(NamedTuple):
    """A value of a knob: its rate by the model and as measured, as shares of the best."""

    value: float
    model: float
    measured: Spread | None


def curve_of(cell: Record, option: str) -> list[Value]:
    """Return both curves over a knob; of several, the others are as in the model's choice."""
    choice, best = cell["model"]["choice"], cell["model"]["rate"]
    if "measured" not in cell:
        return [Value(value, rate / best, None) for value, rate in cell["model"]["curves"][option]]
    run = cell["measured"]
    fastest = run["points"][run["optimum"]]["samples"]
    others = {name: value for name, value in choice.items() if name != option}
    found = [
        Value(point["options"][option], point["predicted"] / best, ratio(point["samples"], fastest))
        for point in run["points"]
        if option in point["options"] and others.items() <= point["options"].items()
    ]
    return sorted(found, key=lambda value: value.value)


def curve_sheets(cell: Record) -> Iterator[Sheet]:
    """Return both curves of one algorithm side by side, a table for each knob."""
    for option in cell["knobs"]:
        title = f"{cell['algorithm']}: {option} within {format_bytes(cell['memory'])}"
        heads: tuple[str, ...] = (option, "by the model", "measured")
        rows: list[tuple[str, ...]] = [
            (shown(option, v.value), f"{v.model:.1%}", _share(v.measured))
            for v in curve_of(cell, option)
        ]
        note = "each as a share of its best; measured: median (range) over rounds"
        if "measured" not in cell:
            heads, rows, note = heads[:2], [row[:2] for row in rows], "as a share of the best"
        yield Sheet(title, heads, tuple(rows), note)


def summary_lines(cell: Record) -> Iterator[str]:
    """Say what the model chose, what was best when measured, and what untuned would lose."""
    model = cell["model"]
    untuned = 1 - model["untuned"] / model["rate"]
    yield (
        f"by the model: {options_text(model['choice'])}, {model['rate']:,} rows/s; "
        f"untuned loses {untuned:.1%} of it{_why(cell)}"
    )
    if "measured" not in cell:
        return
    run = cell["measured"]
    best, chosen = (run["points"][run[which]] for which in ("optimum", "chosen"))
    middle, least, most = run["loss"]
    yield (
        f"measured: {options_text(best['options'])}, {spread(best['samples']).middle:,.0f} rows/s; "
        f"untuned loses {untuned_loss(cell):.1%} of it"
    )
    yield (
        f"the model's choice ({options_text(chosen['options'])}) loses {middle:.1%} "
        f"({least:.1%} to {most:.1%}) of the measured optimum's rate"
    )


def _why(cell: Record) -> str:
    """Say why MESHJOIN's optimum is not the closed form's, which it has untuned."""
    if "buffer" not in cell["knobs"]:
        return ""
    return (
        f" (the papers' closed form, {format_bytes(tuned_buffer(cell['memory']))}, has a disk of "
        "2008 fitted into it; here c_I/O is measured, and rows cost beside it)"
    )


def _share(found: Spread | None) -> str:
    if found is None:
        return "–"
    return f"{found.middle:.1%} ({found.least:.1%}–{found.most:.1%})"
