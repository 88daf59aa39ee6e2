"""What a record of predictions says: errors by algorithm, and whether the winner was named."""

from __future__ import annotations

import statistics
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.summary import quantile
from semistream.cost.predict import standing
from semistream.cost.sheet import Sheet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Record = dict[str, Any]

__all__ = ["Named", "contenders", "error", "model_sheets", "named"]

NEAR = 0.95
"""From this share of the best on, a choice is as good as the best."""
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


def named(cell: Record, without: str = "", by: str = "planned") -> Named:
    """Compare the algorithm with the highest prediction with the one that was fastest."""
    rates = {name: rate for name, rate in cell["rates"].items() if name != without}
    chosen = max(rates, key=lambda name: standing(name, float(rates[name][by])))
    again = {name: rate for name, rate in cell.get("run_off", {}).items() if name in rates}
    seen = again if chosen in again else rates
    best = max(seen, key=lambda name: float(seen[name]["steady"]))
    return Named(chosen, best, seen[chosen]["steady"] / seen[best]["steady"])


def contenders(cell: Record) -> set[str]:
    """Give who is to be measured again, in a run-off.

    Of many that are about as fast, the one that was measured as the fastest was lucky too. Where it
    is not the one that was named, both run again, with all that came near.

    Examples
    --------
    >>> speeds = {"a": (3, 90), "b": (2, 100), "c": (1, 97), "d": (1, 80)}
    >>> rates = {n: {"planned": p, "predicted": p, "steady": s} for n, (p, s) in speeds.items()}
    >>> sorted(contenders({"rates": rates}))
    ['a', 'b', 'c']
    """
    found: set[str] = set()
    for by, without in product(("planned", "predicted"), ("", _OURS)):
        pick = named(cell, without, by)
        if pick.chosen != pick.best:
            least = NEAR * cell["rates"][pick.best]["steady"]
            close = {n for n, rate in cell["rates"].items() if rate["steady"] >= least}
            found |= {pick.chosen} | (close - {without})
    return found


def model_sheets(record: Record) -> Iterator[Sheet]:
    """Give the tables of a record of predictions."""
    yield _errors(record)
    yield _winners(record)
    yield _rates(record)


def _errors(record: Record) -> Sheet:
    names = list(dict.fromkeys(name for cell in record["cells"] for name in cell["rates"]))
    rows = [(name, *_error_row(record, (name,))) for name in names]
    rows.append(("all", *_error_row(record, names)))
    sizes = record["grid"]["rows"]
    heads = ("algorithm", "median", "nine in ten", "worst", *(f"R = {r / 1e6:g}M" for r in sizes))
    heads += ("as planned: median", "nine in ten", "as calibrated: median", "nine in ten")
    heads += ("rows a page: median", "nine in ten")
    note = (
        "error of the predicted service rate, |predicted/measured − 1|: median, what nine in ten "
        "cells do not exceed, worst, and the median for each size of R; as a plan has it, which "
        "knows nothing of a join's age and batches; without what the standards say of the disk's "
        "speed just then; and of the rows that a page answers, which no clock has a part in. "
        f"{_drifts(record)}"
    )
    title = f"Predicted against measured, {record['grid']['read']} reads, one run"
    return Sheet(title, heads, tuple(rows), note)


def _drifts(record: Record) -> str:
    """Say how the machine's speed moved."""
    drifts = [cell["drift"] for cell in record["cells"]]
    if not all(drifts):
        return "The profile has no standards: it was made quickly, or by an older version"
    reads = [times for each in drifts for times in each.values()]
    return (
        f"In the cells a read took {min(reads):.2f} to {max(reads):.2f} of what it took when the "
        "machine was calibrated"
    )


def _error_row(record: Record, names: Sequence[str]) -> tuple[str, ...]:
    def errors(rows: int | None = None, what: str = "predicted") -> list[float]:
        cells = [cell["rates"] for cell in record["cells"] if rows in {None, cell["rows"]}]
        return [error(rates[name], what) for rates in cells for name in names if name in rates]

    found, plans, raw = errors(), errors(what="planned"), errors(what="as_calibrated")
    all_of_them = [
        c["rates"][name] for c in record["cells"] for name in names if name in c["rates"]
    ]
    each = [errors(rows) for rows in record["grid"]["rows"]]
    middles = [f"{statistics.median(some):.0%}" if some else "–" for some in each]
    whole = statistics.median(found), quantile(found, 0.9), max(found)
    others = [at for each in (plans, raw) for at in (statistics.median(each), quantile(each, 0.9))]
    pages = [abs(r["predicted_rows_a_page"] / r["rows_a_page"] - 1) for r in all_of_them]
    counted = statistics.median(pages), quantile(pages, 0.9)
    return (*_percent(whole), *middles, *_percent(others), *_percent(counted))


def _percent(values: Sequence[float]) -> list[str]:
    return [f"{value:.0%}" for value in values]


def _winners(record: Record) -> Sheet:
    rows: list[tuple[str, ...]] = []
    among = {"all algorithms": "", "published ones alone": _OURS}
    ways = {"planned": "", "predicted": ", for joins of this age"}
    for (by, how), (who, without) in product(ways.items(), among.items()):
        what = f"{who}{how}"
        found = [named(cell, without, by) for cell in record["cells"]]
        same = sum(each.chosen == each.best for each in found)
        near = sum(each.near for each in found)
        worst = min(each.share for each in found)
        count = len(found)
        rows.append((what, f"{same} of {count}", f"{near} of {count}", f"{worst:.2f}"))
    heads = ("among", "named the fastest", "or one within 5 %", "worst choice, share of the best")
    again = sum("run_off" in cell for cell in record["cells"])
    note = (
        f"in {again} of the cells those that were about as fast had a run-off, which decides "
        "there: of many the one measured as the fastest was lucky too"
    )
    return Sheet("The algorithm that the planner names", heads, tuple(rows), note)


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
