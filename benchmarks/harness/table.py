"""Tables of results, in the terminal and in a Markdown file, between its marks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from semistream.errors import OptionError

__all__ = ["Sheet", "between_marks", "markdown", "terminal_table"]


@dataclass(frozen=True)
class Sheet:
    """A table: its title, heads and rows of text, and a note below it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def terminal_table(sheet: Sheet) -> Table:
    """Draw a sheet for the terminal."""
    table = Table(title=sheet.title, caption=sheet.note)
    for number, head in enumerate(sheet.heads):
        table.add_column(head, justify="right" if number else "left")
    for row in sheet.rows:
        table.add_row(*(Text(text, "red" if text.startswith("✗") else "") for text in row))
    return table


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
