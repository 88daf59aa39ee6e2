"""Tables of enrichment with a master larger than memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.harness.record import Record
from benchmarks.harness.samples import Spread, spread, thousands
from benchmarks.harness.table import Sheet
from benchmarks.spark.confined.device import Device, bound_rate
from benchmarks.spark.confined.grid import BOUNDS, SPARK, STORES, Cell
from benchmarks.spark.peers.rates import best, rates, to
from semistream.units import format_bytes

_OURS = "enrich"
_HEADS = (
    *("", "thousand rows/s", "share of the device's bound", "from memory", "pages a batch"),
    *(
        "read a batch",
        "held of the budget",
        "all processes",
        "peak of the group (limited)",
        "cached",
    ),
)


def sheets(record: Record) -> Iterator[Sheet]:
    """Return the tables of a record: all cells in one, and one for each."""
    cells = record.get("cells", [])
    if cells:
        yield _overview(record, cells)
    for cell in cells:
        yield _systems(record, cell)


def device_of(cell: Record) -> Device:
    """Return the disk's usual speed: the medians of what was measured before every turn.

    A shared disk stands still now and then; by a single measurement shares would be its noise.
    """
    devices = [turn["device"] for turns in cell["facts"].values() for turn in turns]
    return Device(**{name: statistics.median(d[name] for d in devices) for name in devices[0]})


def bound(cell: Record) -> float:
    """Return the stream rows a second that the disk allows."""
    size, cold = cell["pages_bytes"], cell["demand"]["cold_keys"]
    return bound_rate(cell["batch_rows"], size, cold, device_of(cell))


def _share(cell: Record, system: str, dropped: int) -> Spread:
    """Return the rates as shares of what the disk allows."""
    return spread(rate / bound(cell) for rate in rates(cell, system, dropped))


def _label(cell: Record) -> str:
    return Cell(**{name: cell[name] for name in Cell.__dataclass_fields__}).label


def _overview(record: Record, cells: list[Record]) -> Sheet:
    dropped, rows = record["dropped"], []
    for cell in filter(lambda each: each["facts"], cells):
        ours = cell["milliseconds"].get(_OURS)
        beside = [to(cell, _OURS, best(cell, names, dropped), dropped) for names in (SPARK, STORES)]
        rows.append(
            (
                _label(cell),
                f"{bound(cell) / 1e3:,.0f}",
                thousands(rates(cell, _OURS, dropped)) if ours else "–",
                _share(cell, _OURS, dropped).show() if ours else "–",
                *(each.show(unit="×") if each else "–" for each in beside),
            )
        )
    heads = ("", "device's bound", "enrich", "share of the bound", "to Spark's best join")
    note = "thousand stream rows/s: median of rounds (range); ratios round by round"
    return Sheet("Larger than memory", (*heads, "to the best store"), tuple(rows), note)


def _systems(record: Record, cell: Record) -> Sheet:
    """Return one cell: systems down."""
    rows = [
        (record["labels"][name], *_row(record, cell, name))
        for name in record["labels"]
        if name in cell["milliseconds"]
    ]
    rows += [(record["labels"][name], "failed", why) for name, why in cell["failed"].items()]
    filled = [(*row, *[""] * (len(_HEADS) - len(row))) for row in rows]
    return Sheet(_label(cell), _HEADS, tuple(filled), f"{_device(cell)}; {_limit(cell)}")


def _row(record: Record, cell: Record, name: str) -> tuple[str, ...]:
    dropped, facts = record["dropped"], cell["facts"][name]
    batches = [batch for turn in facts for batch in turn["batches"][dropped:]]
    share = "" if name in BOUNDS else _share(cell, name, dropped).show()
    ours = ("", "", "", "")
    if batches:
        middle = {what: statistics.median(b[what] for b in batches) for what in batches[0]}
        ours = (
            f"{middle['hit_rate']:.1%} of {cell['demand']['best_share']:.1%}",
            f"{middle['pages_read']:,.0f}",
            format_bytes(int(middle["bytes_read"])),
            f"{middle['held'] / middle['budget']:.0%}",
        )
    limited = spread(turn["limited"] for turn in facts).middle
    peak = max(turn.get("peak", 0) for turn in facts)
    return (
        thousands(rates(cell, name, dropped)),
        share,
        *ours,
        format_bytes(max(turn["processes"]["all"] for turn in facts)),
        f"{format_bytes(peak)} ({limited:,.0f})" if peak else "",
        f"{max(turn['cached'] for turn in facts) / cell['pages_bytes']:.0%}",
    )


def _device(cell: Record) -> str:
    if not cell["facts"]:
        return "all failed"
    speeds = [Device(**turn["device"]) for turns in cell["facts"].values() for turn in turns]
    passed = spread(speed.bandwidth / 1e9 for speed in speeds).show(unit=" GB/s")
    reads = thousands(speed.reads for speed in speeds)
    cold, rate = cell["demand"]["cold_keys"], f"{bound(cell) / 1e3:,.0f}"
    return (
        f"the disk: {passed} in one pass over {format_bytes(cell['pages_bytes'])}, {reads} "
        f"thousand reads of 4 KB a second; {cold:,.0f} distinct cold keys a batch; so it allows "
        f"{rate} thousand rows/s"
    )


def _limit(cell: Record) -> str:
    if cell["limit"] is None:
        return "no cgroup"
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in cell["limit"].items())
    return f"limit {format_bytes(sum(cell['limit'].values()))}: {parts}"
