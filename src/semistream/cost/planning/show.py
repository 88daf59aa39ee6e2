"""The planner's answer as tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.planning.question import is_mapped, is_whole
from semistream.cost.planning.rates import format_rate
from semistream.cost.sheet import Sheet
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semistream.cost.planning.answers import Answer
    from semistream.cost.planning.cluster import Cluster
    from semistream.cost.planning.result import Planning

__all__ = ["as_text", "cluster_sheet", "plain_table", "planning_sheets"]

_RATES = ("predicted rows/s", "with half", "with twice", "from memory", "pages/s", "rows a page")
_SPLIT = ("window", "cache", "disk buffer", "pinned", "rest")


def planning_sheets(planning: Planning) -> list[Sheet]:
    """Give the algorithms, best first: what they reach, and how they divide their memory."""
    by_rate = planning.asked.rate is not None
    heads = ("algorithm", *(["least memory"] if by_rate else []), *_RATES)
    rates = tuple(_rates(answer, by_rate) for answer in planning.answers)
    parts = tuple(_parts(answer) for answer in planning.answers if answer.prediction)
    sheets = [Sheet(_title(planning), heads, rates)]
    if parts:
        sheets.append(Sheet("the settled split, predicted", ("algorithm", *_SPLIT), parts))
    return sheets


def _title(planning: Planning) -> str:
    asked, cluster = planning.asked, planning.cluster
    if asked.rate is None:
        one = "one worker " if cluster else ""
        return f"{one}with {format_bytes(asked.memory or 0)}, predicted"
    each = f" of each of {cluster.workers} workers" if cluster else ""
    return f"least memory{each} for {format_rate(asked.rate)} rows/s, predicted"


def _rates(answer: Answer, by_rate: bool) -> tuple[str, ...]:
    found = answer.prediction
    if found is None:
        least = f"needs {format_bytes(answer.least)}" if answer.least else ""
        what = ("none", f"at most {format_rate(answer.most)}") if answer.most else (least,)
        return (answer.algorithm, *what, *[""] * (len(_RATES) - 1))
    pages = answer.rows_a_page
    return (
        answer.algorithm,
        *([format_bytes(answer.memory)] if by_rate else []),
        format_rate(answer.rate),
        format_rate(answer.half) if answer.half else "–",
        format_rate(answer.twice),
        f"{answer.from_memory:.1%}",
        format_rate(found.pages_a_second),
        "" if pages is None else format_rate(pages),
    )


def _parts(answer: Answer) -> tuple[str, ...]:
    split, found = answer.split, answer.prediction
    assert split is not None and found is not None  # noqa: S101, PT018 - for the type checker
    sizes = (split.window, split.cache, split.disk_buffer, split.pinned, split.rest)
    window, cache, *others = (format_bytes(size) if size else "–" for size in sizes)
    held = "mapped pages" if is_mapped(found) else "whole master" if is_whole(found) else cache
    return (answer.algorithm, window, held, *others)


def cluster_sheet(cluster: Cluster) -> Sheet:
    """Give the table of the ways to bring rows to workers."""
    title = f"{cluster.workers} workers with {format_bytes(cluster.memory)} each, predicted"
    rows = tuple(
        (
            way.name,
            format_rate(way.rate),
            f"{way.skew:.2f}",
            format_bytes(way.network_bytes) if way.network_bytes else "none",
        )
        for way in cluster.ways
    )
    heads = ("rows go", "predicted rows/s", "largest load to mean", "network, a million rows")
    return Sheet(title, heads, rows, cluster.note)


def plain_table(sheet: Sheet) -> str:
    """Write a sheet as text of fixed width.

    Examples
    --------
    >>> print(plain_table(Sheet("two", ("name", "rate"), (("a", "1k"), ("bcd", "20k")))))
    two
    name  rate
    a       1k
    bcd    20k
    """
    lines = (sheet.heads, *sheet.rows)
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    text = [sheet.title, *(_line(cells, widths) for cells in lines), *filter(None, [sheet.note])]
    return "\n".join(text)


def _line(cells: Iterable[str], widths: list[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    texts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
    return "  ".join(texts).rstrip()


def as_text(planning: Planning) -> str:
    """Write all of a planning: the tables, the advice, the notes."""
    parts = [plain_table(sheet) for sheet in planning_sheets(planning)]
    if planning.cluster:
        parts.append(plain_table(cluster_sheet(planning.cluster)))
    parts += planning.advice
    return "\n\n".join([*parts, *filter(None, ["\n".join(planning.notes)])])
