"""Tables of results, from their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["rate_tables"]


def rate_tables(record: dict[str, Any]) -> Iterator[Table]:
    """Give one table for each way of reading: algorithms down, budgets across."""
    for read in record["grid"]["reads"]:
        yield _table(record, read)


def _table(record: dict[str, Any], read: str) -> Table:
    grid = record["grid"]
    rates = {(r["algorithm"], r["share"]): r for r in record["rates"] if r["read"] == read}
    held = max((rate["resident"] for rate in rates.values()), default=0)
    cached = {
        "mapped": f"the operating system held {format_bytes(held)} of R",
        "direct": "past the operating system's cache",
    }
    title = (
        f"{read} reads, R = {grid['rows']:,} × {grid['row_bytes']} B, Zipf {grid['exponent']}, "
        f"one thread; {cached[read]}"
    )
    table = Table(title=title, caption="thousand rows/s (spread) and share of the bound")
    table.add_column("algorithm")
    for share in grid["shares"]:
        table.add_column(f"{share:.0%} of R", justify="right")
    for name in grid["algorithms"]:
        table.add_row(name, *(_cell(rates[name, share]) for share in grid["shares"]))
    bounds = [rates[grid["algorithms"][0], share]["bound"] for share in grid["shares"]]
    table.add_row("[dim]in memory (bound)[/]", *(f"[dim]{_spread(b)}[/]" for b in bounds))
    return table


def _cell(rate: dict[str, Any]) -> str:
    return f"{_spread(rate['samples'])} {rate['ratio']:>6.1%}"


def _spread(samples: list[float]) -> str:
    """Give the middle sample and the range of all, in thousands."""
    ordered = sorted(samples)
    middle = ordered[len(ordered) // 2]
    return f"{middle / 1e3:,.0f} ({ordered[0] / 1e3:,.0f}–{ordered[-1] / 1e3:,.0f})"
