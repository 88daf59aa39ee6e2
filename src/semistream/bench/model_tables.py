"""What a record of predictions says: errors by algorithm, and whether the winner was named."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.bench.sheet import Sheet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Record = dict[str, Any]

__all__ = ["Named", "error", "model_sheets", "named", "quantile"]

NEAR = 0.95
"""From this share of the best on, a choice is as good as the best."""
NEAR_AUTO = 0.90
"""And this is what ``auto`` is to reach."""
_OURS = "adaptive"


class Named(NamedTuple):
    """The algorithm that the models name in a cell, and how it does."""

    chosen: str
    best: str
    share: float
    """The measured rate of the one that was chosen, to that of the best."""

    @property
    def near(self) -> bool:
        """Whether the choice is as good as the best."""
        return self.share >= NEAR


def error(rate: Record, what: str = "predicted") -> float:
    """Give how far a prediction is from what was measured, in relation to that.

    Examples
    --------
    >>> round(error({"predicted": 110, "steady": 100}), 3)
    0.1
    """
    return float(abs(rate[what] / rate["steady"] - 1))


def quantile(values: Sequence[float], share: float) -> float:
    """Give the least value that so large a share of all does not exceed.

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0, 9.0], 0.5), quantile([3.0, 1.0, 2.0, 9.0], 0.9)
    (2.0, 9.0)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def named(cell: Record, without: str = "") -> Named:
    """Compare the algorithm with the highest prediction with the one that was fastest."""
    rates = {name: rate for name, rate in cell["rates"].items() if name != without}
    chosen = max(rates, key=lambda name: float(rates[name]["predicted"]))
    best = max(rates, key=lambda name: float(rates[name]["steady"]))
    return Named(chosen, best, rates[chosen]["steady"] / rates[best]["steady"])


def model_sheets(record: Record) -> Iterator[Sheet]:
    """Give the tables of a record of predictions."""
    yield _errors(record)
    yield _winners(record)
    yield _auto(record)
    yield _rates(record)


def _errors(record: Record) -> Sheet:
    names = list(dict.fromkeys(name for cell in record["cells"] for name in cell["rates"]))
    rows = [(name, *_error_row(record, (name,))) for name in names]
    rows.append(("all", *_error_row(record, names)))
    sizes = record["grid"]["rows"]
    heads = ("algorithm", "median", "nine in ten", "worst", *(f"R = {r / 1e6:g}M" for r in sizes))
    heads += ("as calibrated: median", "nine in ten", "rows a page: median", "nine in ten")
    note = (
        "error of the predicted service rate, |predicted/measured − 1|: median, what nine in ten "
        "cells do not exceed, worst, and the median for each size of R; without what the standards "
        "say of the disk's speed just then; and of the rows that a page answers, which no clock "
        f"has a part in. {_drifts(record)}"
    )
    title = f"Predicted against measured, {record['grid']['read']} reads, one run"
    return Sheet(title, heads, tuple(rows), note)


def _drifts(record: Record) -> str:
    """Say how the machine's speed moved."""
    drifts = [cell["drift"] for cell in record["cells"]]
    if not all(drifts):
        return "The profile has no standards: it was made quickly, or by an older version"
    reads = [each[record["grid"]["read"]] for each in drifts]
    return (
        f"In the cells a read took {min(reads):.2f} to {max(reads):.2f} of what it took when the "
        "machine was calibrated"
    )


def _error_row(record: Record, names: Sequence[str]) -> tuple[str, ...]:
    def errors(rows: int | None = None, what: str = "predicted") -> list[float]:
        cells = [cell["rates"] for cell in record["cells"] if rows in {None, cell["rows"]}]
        return [error(rates[name], what) for rates in cells for name in names if name in rates]

    found, raw = errors(), errors(what="as_calibrated")
    all_of_them = [
        c["rates"][name] for c in record["cells"] for name in names if name in c["rates"]
    ]
    each = [errors(rows) for rows in record["grid"]["rows"]]
    middles = [f"{statistics.median(some):.0%}" if some else "–" for some in each]
    whole = statistics.median(found), quantile(found, 0.9), max(found)
    calibrated = statistics.median(raw), quantile(raw, 0.9)
    pages = [abs(r["predicted_rows_a_page"] / r["rows_a_page"] - 1) for r in all_of_them]
    counted = statistics.median(pages), quantile(pages, 0.9)
    return (*_percent(whole), *middles, *_percent(calibrated), *_percent(counted))


def _percent(values: Sequence[float]) -> list[str]:
    return [f"{value:.0%}" for value in values]


def _winners(record: Record) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for what, without in (("all algorithms", ""), ("published ones alone", _OURS)):
        found = [named(cell, without) for cell in record["cells"]]
        same = sum(each.chosen == each.best for each in found)
        near = sum(each.near for each in found)
        worst = min(each.share for each in found)
        count = len(found)
        rows.append((what, f"{same} of {count}", f"{near} of {count}", f"{worst:.2f}"))
    heads = ("among", "named the fastest", "or one within 5 %", "worst choice, share of the best")
    return Sheet("The algorithm that the planner names", heads, tuple(rows))


def _auto(record: Record) -> Sheet:
    """Give how ``auto`` does beside the best that was chosen by hand."""
    rows = []
    for size in (None, *dict.fromkeys(cell["rows"] for cell in record["cells"])):
        cells = [cell for cell in record["cells"] if size in {None, cell["rows"]}]
        shares = [
            cell["auto"]["steady"] / max(rate["steady"] for rate in cell["rates"].values())
            for cell in cells
        ]
        others = sum(cell["auto"]["chosen"] != _OURS for cell in cells)
        near = sum(share >= NEAR_AUTO for share in shares)
        middle = f"{statistics.median(shares):.2f}"
        label = f"R = {size / 1e6:g}M" if size else "all"
        count = f"of {len(cells)}"
        rows.append((label, f"{near} {count}", middle, f"{min(shares):.2f}", f"{others} {count}"))
    heads = ("cells", "within 10 % of the best", "median share", "worst", "not adaptive")
    return Sheet("``auto`` beside the best choice by hand", heads, tuple(rows))


def _rates(record: Record) -> Sheet:
    """Give predicted and measured rates of the best few, cell by cell."""
    rows = []
    for cell in record["cells"]:
        ours = cell["rates"].get(_OURS)
        pick = named(cell, _OURS)
        setting = f"{cell['rows'] / 1e6:g}M", f"{cell['share']:.0%}", f"{cell['exponent']:g}"
        mine = (_pair(ours),) if ours else ("–",)
        best = f"{pick.best} {_pair(cell['rates'][pick.best])}"
        chosen = f"{pick.chosen} ({pick.share:.2f})"
        rows.append((*setting, *mine, best, chosen))
    heads = ("R", "memory", "Zipf", "adaptive", "fastest published", "named (share of the fastest)")
    note = "thousand stream rows/s, predicted → measured, without stalls"
    return Sheet("Predicted and measured rates", heads, tuple(rows), note)


def _pair(rate: Record) -> str:
    return f"{rate['predicted'] / 1e3:,.0f} → {rate['steady'] / 1e3:,.0f}"
