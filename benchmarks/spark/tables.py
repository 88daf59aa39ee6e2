"""Tables of what was measured on Spark."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.rounds import warm
from semistream.cost.sheet import Sheet
from semistream.cost.spread import Spread, spread
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Record = dict[str, Any]

__all__ = ["spark_sheets"]

_OURS = "enrich"


def spark_sheets(record: Record) -> Iterator[Sheet]:
    """Give the tables of a record; one that is not complete has some of them."""
    if "single" in record:
        yield _single(record)
    if "routing" in record:
        yield _routing(record)
    if "warmth" in record:
        yield _warmth(record)
    if record["failed"]:
        yield Sheet("Failed", ("part", "why"), tuple(record["failed"].items()))


def _times(found: Spread) -> str:
    return f"{found.middle:.2f}× ({found.least:.2f}–{found.most:.2f})"


def _single(record: Record) -> Sheet:
    single, dropped = record["single"], record["dropped"]
    samples = {
        name: [took for each in rounds for took in warm(each, dropped)]
        for name, rounds in single["milliseconds"].items()
    }
    middle = {name: statistics.median(took) for name, took in samples.items()}
    rows = [
        (label, _milliseconds(samples[name]), str(len(samples[name])))
        for label, name in (("with the join", _OURS), ("without", "none"))
    ]
    rows.append(("what the join costs", f"{middle[_OURS] - middle['none']:.0f} ms", ""))
    title = f"A micro-batch of a single row, R = {single['rows']:,}"
    return Sheet(title, ("", "median (range)", "batches"), tuple(rows))


def _milliseconds(samples: Sequence[int]) -> str:
    middle, least, most = spread(samples)
    return f"{middle:.0f} ms ({least:.0f}–{most:.0f})"


def _routing(record: Record) -> Sheet:
    """Give how much the most loaded task has to do: router, skew and read down."""
    rows = []
    for entry in record["routing"]:
        time, count = (
            spread(_most_to_median([task[which] for task in tasks]) for tasks in entry["batches"])
            for which in (0, 1)
        )
        about = (entry["router"], f"{entry['exponent']:g}", entry["read"])
        middle = statistics.median(task[0] for tasks in entry["batches"] for task in tasks)
        rows.append((*about, f"{middle:.0f} ms", _times(time), _times(count)))
    entry = record["routing"][0]
    title = (
        f"Routing into {record['grid']['partitions']} partitions, batches of "
        f"{entry['batch_rows']:,} rows, R = {entry['rows']:,}"
    )
    heads = ("rows are routed", "Zipf", "read", "median task", "slowest to median")
    note = "by page is ours, by hash is Spark's of the key; median of batches (range)"
    return Sheet(title, (*heads, "most rows to median"), tuple(rows), note)


def _most_to_median(values: Sequence[int]) -> float:
    return max(values) / max(1.0, statistics.median(values))


def _warmth(record: Record) -> Sheet:
    """Give hit rates: workers down, batches across."""
    warmth, grid = record["warmth"], record["grid"]
    after, killed = grid["warm_batches"], grid["warm_batches"] + grid["later_batches"]
    shown = {
        "batch 1": 0,
        "2": 1,
        str(after // 2): after // 2 - 1,
        str(after): after - 1,
        f"after {warmth['pause']:g} s": after,
        "a worker killed": killed,
        "last": -1,
    }
    one = warmth["one_join"]
    rows = [("one join", *(f"{one[i]:.1%}" for i in shown.values()), "", "")]
    for crew in warmth["crews"]:
        rates = crew["hit_rates"]
        behind = max(100 * (one[i] - rate) for i, rate in enumerate(rates[after - 1 :], after - 1))
        about = f"local[{crew['workers']}]"
        ends = (f"{behind:.1f} points", format_bytes(crew["held"]))
        rows.append((about, *(f"{rates[i]:.1%}" for i in shown.values()), *ends))
    survived = ", ".join(
        f"{crew['survived_pause']} of local[{crew['workers']}]" for crew in warmth["crews"]
    )
    title = (
        f"Rows answered from memory, direct reads, R = {warmth['rows']:,}, "
        f"{format_bytes(warmth['memory'])} in all, batches of {warmth['batch_rows']:,} rows"
    )
    note = f"most behind: from batch {after} on; workers that were still there after the pause: "
    heads = ("", *shown, "most behind one join", "all held at most")
    return Sheet(title, heads, tuple(rows), note + survived)
