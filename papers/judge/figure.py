"""Figures: what a paper printed and what was measured here, side by side, as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.figure import MARKS, draw_into
from papers.experiment import KINDS, Experiment
from papers.judge.intervals import interval
from papers.published import Published

Record = Mapping[str, Any]


_MOST_WITHIN = 8  # lines whose legend has room within the axes
_X = {
    "rows": ("rows of R, million", 1e6),
    "memory": ("memory, MB", 2**20),
    "share": ("memory, % of R", 0.01),
    "exponent": ("skew", 1.0),
    "buffer": ("disk buffer, MB", 2**20),
    "k": ("swappable part, pages", 1.0),
    "l": ("non-swappable part, pages", 1.0),
    "rate": ("arrivals, thousand rows/s", 1e3),
    "tasks": ("tasks at once", 1.0),
}
_Y = {
    "optimum": ("best disk buffer, MB", 2**20),
    "reads": ("µs a page", 1e-6),
    "pinned": ("million rows", 1e6),
    "least": ("least memory, MB", 2**20),
}
_RATE = ("thousand rows/s", 1e3)
_LOG = frozenset({"rows", "buffer", "k", "l", "tasks"})
_PREDICTED = frozenset({"validation", "curve", "optimum", "reads", "least"})


def draw(experiment: Experiment, record: Record, printed: Sequence[Published], path: Path) -> None:
    """Draw an experiment: on the left what is published, on the right what was measured."""

    def both(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        _measured(right, experiment, record)
        _published(left, experiment, record, printed)
        if any(p.value is not None and p.unit != "ratio" for p in printed):
            top = max(panel.get_ylim()[1] for panel in (left, right))
            for panel in (left, right):
                panel.set_ylim(0, top)
        if any(p.value is not None for p in printed):
            left.set_xlim(right.get_xlim())

    draw_into(path, both, text="none")


def _axes(panel: Any, experiment: Experiment, y: str, title: str) -> None:
    name, unit = _X[experiment.vary]
    if experiment.vary in _LOG:
        panel.set_xscale("log", base=2)
        panel.minorticks_off()
    panel.set(xlabel=name, ylabel=y, title=title)
    ticks = [x / unit for x in experiment.values]
    panel.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])


def _measured(panel: Any, experiment: Experiment, record: Record) -> None:
    """Draw a line for each algorithm, in the paper's order, with 95 % confidence intervals."""
    name, unit = _Y.get(experiment.kind, _RATE)
    labels = list(dict.fromkeys(run["label"] for run in record["runs"]))
    for number, label in enumerate(labels):
        style = {"color": _color(label, number), "marker": MARKS[number % len(MARKS)]}
        _line(panel, experiment, record, label, (unit, style))
    size = f", {record['factor']:.3g} of the paper's size" if record["factor"] < 1 else ""
    _axes(panel, experiment, name, f"measured here{size}")
    panel.set_ylim(0, None)
    lines = len(panel.get_legend_handles_labels()[1])
    if lines:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if lines > _MOST_WITHIN else {}
        panel.legend(fontsize="x-small", **beside)


def _color(label: str, number: int) -> str:
    if label.startswith("adaptive"):
        return "grey" if label.endswith("on one") else "black"
    return f"C{number % 10}"


def _line(
    panel: Any,
    experiment: Experiment,
    record: Record,
    label: str,
    look: tuple[float, dict[str, str]],
) -> None:
    unit, style = look
    runs = [(p["x"], p["runs"][label]) for p in record["points"] if label in p["runs"]]
    shown = [(x / _X[experiment.vary][1], run) for x, run in runs if "value" in run]
    if not shown:
        return
    x, y = [x for x, _ in shown], [run["value"] / unit for _, run in shown]
    halves = [_half(run) / unit for _, run in shown]
    panel.errorbar(x, y, halves, label=label, capsize=2, markersize=4, **style)
    predicted = [(x, run["predicted"] / unit) for x, run in shown if "predicted" in run]
    if experiment.kind in _PREDICTED and predicted:
        panel.plot(
            *zip(*predicted, strict=True), "--", color=style["color"], label=f"{label}, predicted"
        )


def _half(run: Mapping[str, Any]) -> float:
    """Return half of the confidence interval's width, 0 where there is none."""
    found = interval(run.get("samples", ()))
    return (found.high - found.low) / 2 if found else 0.0


def _published(
    panel: Any,
    experiment: Experiment,
    record: Record,
    printed: Sequence[Published],
) -> None:
    """Draw what is printed: numbers, or ratios beside the measured ones; else what is said."""
    ratios = [p for p in printed if p.unit == "ratio"]
    numbers = [p for p in printed if p.value is not None and p.unit != "ratio"]
    if ratios:
        _ratios(panel, experiment, record, ratios)
    elif numbers:
        _numbers(panel, experiment, numbers)
    else:
        said = "\n\n".join(textwrap.fill(p.statement, 46) for p in printed)
        panel.set_axis_off()
        panel.set_title("published: no numbers in the text")
        panel.text(0.02, 0.95, said, va="top", fontsize=9, transform=panel.transAxes)


def _numbers(panel: Any, experiment: Experiment, numbers: Sequence[Published]) -> None:
    name, unit = _Y.get(experiment.kind, _RATE)
    x = [(p.x or 0) / _X[experiment.vary][1] for p in numbers]
    panel.plot(x, [(p.value or 0) / unit for p in numbers], "o--", color="grey", label="published")
    _axes(panel, experiment, name, f"published (read from {numbers[0].read})")
    panel.legend(fontsize="x-small")


def _ratios(
    panel: Any,
    experiment: Experiment,
    record: Record,
    ratios: Sequence[Published],
) -> None:
    unit = _X[experiment.vary][1]
    name = ratios[0].series
    of, to = name.split("/")
    x = [(p.x or 0) / unit for p in ratios]
    panel.plot(x, [p.value for p in ratios], "o", color="grey", markerfacecolor="none", ms=9)
    found = [
        (p["x"] / unit, p["runs"][of]["value"] / p["runs"][to]["value"])
        for p in record["points"]
        if all("value" in p["runs"].get(line, {}) for line in (of, to))
    ]
    panel.plot([x for x, _ in found], [y for _, y in found], "s-", color="C0", markersize=4)
    panel.axhline(1, color="grey", linewidth=0.8, linestyle=":")
    _axes(
        panel, experiment, f"{of} to {to}", f"published (read from {ratios[0].read}) and measured"
    )
    panel.set_ylim(0, None)
    panel.legend(["published", "measured here"], fontsize="x-small")


def caption(experiment: Experiment, record: Record) -> str:
    """Return what a figure shows."""
    data = f" ({record['origin']})" if record["origin"] else ""
    what = KINDS[experiment.kind].capitalize()
    return f"{experiment.figure}: {experiment.title}{data}. {what}."
