"""Tables of tuning and of sustained rates, from their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.cost.sheet import Sheet
from semistream.cost.spread import spread
from semistream.cost.tuning.show import options_text, untuned_loss
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    Record = dict[str, Any]

__all__ = ["MOST_LOSS", "sustain_sheets", "tuning_sheets"]

MOST_LOSS = 0.03
"""What the model's choice may lose of the rate of the measured optimum."""


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
        f"{spread(untuned_loss(cell) for cell in cells).middle:.1%}, the largest "
        f"{max(untuned_loss(cell) for cell in cells):.1%}"
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
