"""Tables of tuning and of sustained rates, from their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.algorithms.meshjoin import tuned_buffer
from semistream.bench.sheet import Sheet
from semistream.bench.summary import Spread, ratio, spread
from semistream.cost.tuning.knobs import shown
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Record = dict[str, Any]

__all__ = [
    "MOST_LOSS",
    "curve_of",
    "curve_sheets",
    "options_text",
    "summary_lines",
    "sustain_sheets",
    "tuning_sheets",
]

MOST_LOSS = 0.03
"""What the model's choice may lose of the rate of the measured optimum."""


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


def tuning_sheets(record: Record) -> Iterator[Sheet]:
    """Give the model's choice and what it loses: knobs and skew down, budgets across."""
    cells = [cell for cell in record["cells"] if "measured" in cell]
    if not cells:
        return
    found = {(*_line(cell), cell["share"]): cell for cell in cells}
    shares = sorted({cell["share"] for cell in cells})
    rows = [
        (*line, *(_choice(found.get((*line, share))) for share in shares))
        for line in dict.fromkeys(_line(cell) for cell in cells)
    ]
    losses = [cell["measured"]["loss"][0] for cell in cells]
    grid = record["grid"]
    note = (
        "the model's choice → the measured optimum, and what the choice loses of its rate: median "
        f"(range), in rounds after the optimum was known; ✗ marks more than {MOST_LOSS:.0%}: "
        f"{sum(loss > MOST_LOSS for loss in losses)} of {len(losses)}. The largest loss is "
        f"{max(losses):.1%}, the median {spread(losses).middle:.1%}; without tuning the median is "
        f"{spread(_untuned_loss(cell) for cell in cells).middle:.1%}, the largest "
        f"{max(_untuned_loss(cell) for cell in cells):.1%}"
    )
    heads = ("algorithm", "knob", "Zipf", *(f"{share:.0%} of R" for share in shares))
    title = f"Tuned by the model: R = {grid['rows']:,} × 120 B, {grid['read']} reads, one thread"
    yield Sheet(title, heads, tuple(rows), note)


def _line(cell: Record) -> tuple[str, str, str]:
    return cell["algorithm"], ", ".join(cell["knobs"]), f"{cell['exponent']:g}"


def _choice(cell: Record | None) -> str:
    if cell is None:
        return "–"
    run = cell["measured"]
    chosen, best = (
        options_text(run["points"][run[which]]["options"]) for which in ("chosen", "optimum")
    )
    middle, least, most = run["loss"]
    mark = "✗ " if middle > MOST_LOSS else ""
    if chosen == best:
        return f"{chosen}, none"
    return f"{mark}{chosen} → {best}, {middle:.1%} ({least:.1%}–{most:.1%})"


def _untuned_loss(cell: Record) -> float:
    points, best = cell["measured"]["points"], cell["measured"]["optimum"]
    untuned = points[cell["measured"]["untuned"]]
    return 1 - ratio(untuned["samples"], points[best]["samples"]).middle


class Value(NamedTuple):
    """A value of a knob: its rate by the model and as measured, as shares of the best."""

    value: float
    model: float
    measured: Spread | None


def curve_of(cell: Record, option: str) -> list[Value]:
    """Give both curves over a knob; of several, the others are as in the model's choice."""
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
    """Give both curves of one algorithm side by side, a table for each knob."""
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
        f"untuned loses {_untuned_loss(cell):.1%} of it"
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


def sustain_sheets(record: Record) -> Iterator[Sheet]:
    """Give what least memory sustains a rate: algorithms down, both budgets across."""
    grid, runs = record["grid"], record["runs"]
    rows = []
    for name in dict.fromkeys(run["algorithm"] for run in runs):
        mine = {run["times"]: run for run in runs if run["algorithm"] == name}
        first = next(iter(mine.values()))
        rows.append(
            (
                name,
                f"{first['rate'] / 1e3:,.0f}",
                f"{format_bytes(first['least'])} ({first['least'] / record['master_bytes']:.1%})",
                *(_kept_up(mine.get(times), times > 1) for times in grid["times"]),
            )
        )
    heads = ("algorithm", "λ, thousand rows/s", "least memory (of R)", *_heads(grid["times"]))
    title = (
        f"The least memory for a rate: arrivals at λ for {grid['seconds']:g} s each, "
        f"R = {grid['rows']:,} × 120 B, Zipf {grid['exponent']:g}, {grid['read']} reads"
    )
    note = f"mean backlog in the second and in the last quarter; {record['rule']}"
    yield Sheet(title, heads, tuple(rows), note)


def _heads(times: list[float]) -> list[str]:
    return [f"{abs(t - 1):.0%} {'more' if t > 1 else 'less'}" for t in times]


def _kept_up(run: Record | None, expected: bool) -> str:
    if run is None:
        return "–"
    if "refused" in run:
        return "refused: below the least plan"
    mark = "" if run["bounded"] == expected else "✗ "
    word = "bounded" if run["bounded"] else "grows"
    second, last = (run["quarters"][place] / run["rate"] for place in (1, 3))
    return f"{mark}{word}, {second:.2f} → {last:.2f} s, busy {run['utilisation']:.0%}"
