"""Verdicts: each is computed from the raw runs by its claim's rule, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.claims import LOST
from papers.experiment import Experiment
from papers.judge.claims import Claim
from papers.judge.intervals import Interval
from papers.judge.rules import Found, find, paired
from semistream.units import format_bytes

Record = Mapping[str, Any]


HOLDS, WEAKER, NOT, UNKNOWN = "holds", "holds weaker", "does not hold", "not measured"
_OWN = "adaptive"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds here, and why that is said."""

    claim: Claim
    word: str
    """`HOLDS`, `WEAKER`, `NOT` or `UNKNOWN`."""
    value: float | None
    reason: str


def judge(claim: Claim, records: Mapping[str, Record]) -> Verdict:
    """Decide a claim by its rule from the records of experiments, by ``paper/figure``."""
    record = records.get(claim.figure)
    if record is None:
        return Verdict(claim, UNKNOWN, None, f"{claim.figure} was not run")
    if claim.full_size and record["factor"] < 1:
        size = f"run at {record['factor']:.3g} of the paper's size"
        return Verdict(claim, UNKNOWN, None, f"{size}; an absolute number says nothing there")
    found = find(_points(record), claim.rule)
    if found is None:
        return Verdict(claim, UNKNOWN, None, _why_not(claim, record))
    word = HOLDS if found.value in claim.holds else WEAKER if found.value in claim.weaker else NOT
    return Verdict(claim, word, found.value, _reason(claim, record, found))


def _points(record: Record) -> list[Mapping[str, Any]]:
    return sorted(record["points"], key=lambda point: float(point["x"]))


def _why_not(claim: Claim, record: Record) -> str:
    """Return what is missing: which lines were refused, and by what."""
    refused = {
        f"{line}: {run['refused']}"
        for point in record["points"]
        for line, run in point["runs"].items()
        if line in claim.rule.lines and "refused" in run
    }
    return "; ".join(sorted(refused)) or f"{claim.figure} has no point that the rule needs"


def _reason(claim: Claim, record: Record, found: Found) -> str:
    """Return the number, where it is, how sure it is, the bounds that decide, and the cause."""
    where = f" at {shown(record['vary'], found.x)}" if found.x is not None else ""
    sure = f" ({found.sure})" if found.sure else ""
    bounds = f"holds: {claim.holds}; weaker: {claim.weaker}"
    near = [b for b in _ends(claim) if found.sure and found.sure.low < b < found.sure.high]
    doubt = f" The bound {near[0]:g} lies within the noise." if near else ""
    data = f" The data is {record['origin']}." if record["origin"] else ""
    return f"{claim.rule}{where}: {found.value:.3g}{sure}; {bounds}.{doubt}{_cause(found)}{data}"


def _ends(claim: Claim) -> tuple[float, ...]:
    return (claim.holds.least, claim.holds.most, claim.weaker.least, claim.weaker.most)


def _cause(found: Found) -> str:
    """Return what two lines did differently: pages read for 1,000 rows, rows of the cache."""
    if len(found.runs) != 2 or any("pages_a_row" not in run for run in found.runs.values()):
        return ""
    return f" {'; '.join(_did(line, run) for line, run in found.runs.items())}."


def _did(line: str, run: Mapping[str, Any]) -> str:
    if run.get("resident"):
        return f"{line} held all of its master in memory"
    pages = f"{line} read {1000 * run['pages_a_row']:.3g} pages for 1,000 rows"
    return f"{pages}, its cache answered {run.get('hits', 0):.0%}"


def shown(vary: str, x: float) -> str:
    """Write a value of what is varied.

    Examples
    --------
    >>> shown("rows", 2_000_000), shown("memory", 50 << 20), shown("share", 0.1)
    ('R = 2M', '50 MB', '10 %')
    """
    if vary in {"memory", "buffer"}:
        return format_bytes(x)
    if vary == "share":
        return f"{100 * x:.3g} %"
    return {
        "rows": f"R = {x / 1e6:g}M",
        "exponent": f"skew {x:g}",
        "rate": f"{x / 1e3:g}k rows/s",
    }.get(vary, f"{vary} = {x:g}")


@dataclass(frozen=True)
class Lost:
    """A point at which ``adaptive`` is below `LOST` of the best other line."""

    figure: str
    where: str
    rival: str
    share: float
    sure: Interval | None
    same: bool
    """Whether both hold all of R, so that they are the same code."""


def lost(records: Mapping[str, Record], experiments: Mapping[str, Experiment]) -> Iterator[Lost]:
    """Return every point of a rate at which ``adaptive`` is not among the best.

    A line that joins with R without its duplicates is no rival: it has less to do.
    """
    for name, record in records.items():
        if record["measures"] not in {"rate", "validation", "curve", "nodes"}:
            continue
        none = {k for k, s in experiments[name].series.items() if s.unique or s.algorithm == _OWN}
        for point in record["points"]:
            runs = {k: run for k, run in point["runs"].items() if "value" in run}
            rivals = {k: run["value"] for k, run in runs.items() if k not in none}
            if _OWN not in runs or not rivals:
                continue
            rival = max(rivals, key=lambda line: rivals[line])
            share = runs[_OWN]["value"] / rivals[rival]
            if share < LOST:
                both = runs[_OWN], runs[rival]
                same = all(run.get("resident") for run in both)
                where = shown(record["vary"], point["x"])
                yield Lost(name, where, rival, share, paired(*both), same)
