"""What was asked of enrichment beside the alternatives, and whether the record has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.harness.claims import Claim
from benchmarks.harness.record import Record
from benchmarks.harness.samples import quantile, ratio
from benchmarks.spark.peers.rates import best, core_rates, is_plain, steadily, to
from semistream.units import format_bytes

_OURS = "enrich"
# The plan of an enrichment, its compiled code, the rows that leave it: docs/peers.md has how much.
_CONSTANT = 128 << 20
_AS_IT_IS = ("default", "shuffle-hash", "broadcast")
_SPARK = {
    "Spark's best on the table as it is": _AS_IT_IS,
    "Spark's best, buckets included": (*_AS_IT_IS, "sort-merge"),
}
_STORES = ("lmdb", "rocksdb", "sqlite", "lmdb-rows", "rocksdb-rows", "sqlite-rows")
_BATCHES = ("jdbc", "delta")
BESIDE_FLINK = {
    "enrich": "from pages",
    "enrich-database": "from PostgreSQL, the same share of R's bytes for everything",
    "enrich-database-rows": "from PostgreSQL, as many rows cached",
}
"""Where rows come from, and what is the same, in the ways that are set beside Flink."""
_TO_SPARK = (
    # how, R, rows of a batch, times
    ("left", 10_000_000, 100_000, 10.0),
    ("left", 10_000_000, 1_000_000, 5.0),
    ("left", 50_000_000, 100_000, 30.0),
    ("left", 50_000_000, 1_000_000, 5.0),
    ("inner", 10_000_000, 100_000, 2.5),
    ("inner", 10_000_000, 1_000_000, 1.2),
)


def claims(record: Record) -> Iterator[Claim]:
    """Return every claim; those on Spark's own joins also where they were not measured."""
    for how, rows, batch_rows, times in _TO_SPARK:
        yield from _to_spark(record, (how, rows, batch_rows), times)
    yield from _worst(record, "every key-value store in the worker", _STORES, 3.0)
    yield from _worst(record, "DuckDB on disk in the worker", ("duckdb",), 1.0)
    yield from _worst(record, "a foreachBatch that reads by keys", _BATCHES, 1.0)
    yield from _flink(record)
    yield from _cores(record)
    yield from _memory(record)
    yield from _steady(record)


def _to_spark(record: Record, which: tuple[str, int, int], times: float) -> Iterator[Claim]:
    how, rows, batch_rows = which
    what = f"{how}, R = {rows / 1e6:g}M, batches of {batch_rows:,}"
    cells = [cell for cell in record.get("cells", []) if is_plain(record, cell)]
    here = [c for c in cells if (c["how"], c["rows"], c["batch_rows"]) == which]
    cell = here[0] if here else {"milliseconds": {}}
    for others, names in _SPARK.items():
        rival = best(cell, names, record["dropped"])
        measured = to(cell, _OURS, rival, record["dropped"])
        label = f"{what}, to {others}"
        if measured is None:
            yield Claim(label, f"{times:g}×", "not measured", None)
        else:
            yield Claim.of_ratio(label, times, measured, f"({rival})")


def _worst(record: Record, what: str, others: Sequence[str], times: float) -> Iterator[Claim]:
    """Return the claim at the cell and the other where it is least true."""
    ratios = [
        (measured, cell, other)
        for cell in record.get("cells", [])
        for other in others
        if (measured := to(cell, _OURS, other, record["dropped"])) is not None
    ]
    if not ratios:
        return
    worst, cell, other = min(ratios, key=lambda each: each[0].middle)
    several = f", {cell['duplicates']} rows a key" if cell["duplicates"] > 1 else ""
    where = (
        f"({other}; R = {cell['rows'] / 1e6:g}M, {cell['how']}, Zipf {cell['exponent']:g}, "
        f"{cell['share']:.0%}, {cell['batch_rows']:,}{several})"
    )
    met = sum(each.middle >= times for each, _, _ in ratios)
    yield Claim.of_ratio(f"{what}, at worst", times, worst, f"{where}; {met} of {len(ratios)} met")


def _flink(record: Record) -> Iterator[Claim]:
    for entry in record.get("flink", {}).get("cells", []):
        for name, from_where in BESIDE_FLINK.items():
            what = f"{entry['how']}, {from_where}, to Flink's lookup join"
            measured = ratio(entry["rates"][name], entry["rates"]["flink"])
            yield Claim.of_ratio(what, 5.0, measured)


def _cores(record: Record) -> Iterator[Claim]:
    by_count = core_rates(record) if record.get("cores") else {}
    if len(by_count) == 2:
        yield Claim.of_ratio("two processors to one", 1.8, ratio(by_count[2], by_count[1]))


def _memory(record: Record) -> Iterator[Claim]:
    """Hold what ours adds to a session against its budget and a constant, the same for every R."""
    for entry in record.get("memory", []):
        if entry["system"] == _OURS:
            what = f"memory beyond an idle session, R = {entry['rows'] / 1e6:g}M"
            asked = f"{format_bytes(entry['memory'])} + {format_bytes(_CONSTANT)}"
            if "failed" in entry:
                yield Claim(what, asked, entry["failed"][:60], False)
                continue
            more = entry["busy"]["all"] - entry["idle"]["all"]
            yield Claim(what, asked, format_bytes(more), more <= entry["memory"] + _CONSTANT)


def _steady(record: Record) -> Iterator[Claim]:
    """Ask whether rows pile up, and for a p99 below that of Spark's join."""
    steady = {entry["system"]: steadily(entry) for entry in record.get("steady", [])}
    ours, other = steady.get(_OURS), steady.get("default")
    if ours is None:
        return
    rate = record["steady"][0]["rate"]
    kept = f"{ours.rate / 1e3:.1f} thousand"
    yield Claim(
        f"{rate:,} rows/s, kept up", f"{rate / 1e3:g} thousand", kept, ours.rate >= 0.99 * rate
    )
    if other is not None:
        mine, theirs = (quantile(each.took, 0.99) for each in (ours, other))
        measured = f"{mine:,.0f} ms, {theirs:,.0f} ms"
        yield Claim(
            "p99 of a micro-batch then, beside Spark's join", "less", measured, mine < theirs
        )
