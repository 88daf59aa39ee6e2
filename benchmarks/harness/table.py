"""Tables of results in a Markdown file, between its marks."""

from __future__ import annotations

from collections.abc import Iterable

from semistream.cost.sheet import Sheet
from semistream.errors import OptionError

__all__ = ["Sheet", "between_marks", "markdown"]


def markdown(sheets: Iterable[Sheet]) -> str:
    """Write sheets as Markdown tables."""
    return "\n\n".join(_markdown(sheet) for sheet in sheets)


def _markdown(sheet: Sheet) -> str:
    ruler = ["---", *["---:"] * (len(sheet.heads) - 1)]
    lines = [
        f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
        for cells in (sheet.heads, ruler, *sheet.rows)
    ]
    table = "\n".join([f"**{sheet.title}**", "", *lines])
    return f"{table}\n\n{sheet.note[:1].upper()}{sheet.note[1:]}." if sheet.note else table


def between_marks(text: str, name: str, content: str) -> str:
    """Replace what is between the marks of this name.

    Examples
    --------
    >>> print(between_marks("<!-- x --> old <!-- /x --> rest", "x", "new"))
    <!-- x -->
    new
    <!-- /x --> rest
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(first)
    _, ended, after = rest.partition(last)
    if not (found and ended):
        msg = f"the file has no marks {first} and {last} between which the tables could go"
        raise OptionError(msg)
    return f"{before}{first}\n{content}\n{last}{after}"
