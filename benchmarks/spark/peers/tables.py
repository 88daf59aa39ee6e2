"""Tables of enrichment beside the alternatives."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness.record import Record
from benchmarks.harness.samples import quantile, spread, thousands
from benchmarks.harness.table import Sheet
from benchmarks.spark.peers.claims import BESIDE_FLINK, claims
from benchmarks.spark.peers.rates import best, core_rates, is_bound, is_plain, rates, steadily, to
from benchmarks.spark.queries import warm
from semistream.units import format_bytes

_OURS = "enrich"


def sheets(record: Record) -> Iterator[Sheet]:
    """Return the tables of a record; one that is not complete has some of them."""
    cells = record.get("cells", [])
    plain = [c for c in cells if is_plain(record, c)]
    for rows in dict.fromkeys(cell["rows"] for cell in plain):
        chosen = [cell for cell in plain if cell["rows"] == rows]
        heads = [f"{cell['how']}, {cell['batch_rows']:,}" for cell in chosen]
        title = f"R = {rows:,} × 120 B, Zipf 1, {format_bytes(chosen[0]['memory'])}"
        yield _rates(record, title, heads, chosen)
    if others := [cell for cell in cells if not is_plain(record, cell)]:
        title = f"Other skew, several rows a key, other budgets; R = {others[0]['rows']:,}, left"
        yield _rates(record, title, [_differs(cell) for cell in others], others)
    parts = {"memory": _memory, "growth": _growth, "cores": _cores, "steady": _steady}
    for name, sheet in parts.items():
        if record.get(name):
            yield sheet(record)
    if record.get("flink"):
        yield _flink(record)
    if left_out := tuple(record.get("left_out", {}).items()):
        yield Sheet("Left out", ("", "why"), left_out)
    yield _claims(record)


def _differs(cell: Record) -> str:
    """Return in what a cell differs from the others."""
    if cell["duplicates"] > 1:
        return f"{cell['duplicates']} rows a key, {cell['batch_rows']:,}"
    if cell["exponent"] != 1:
        return f"Zipf {cell['exponent']:g}, {cell['batch_rows']:,}"
    return f"{cell['share']:.0%} of R, {cell['batch_rows']:,}"


def _rates(record: Record, title: str, heads: Sequence[str], cells: list[Record]) -> Sheet:
    dropped, labels = record["dropped"], record["labels"]
    known = dict.fromkeys(s for c in cells for s in (*c["milliseconds"], *c["failed"]))
    names = sorted(known, key=list(labels).index)
    rows = [(labels[name], *(_rate(cell, name, dropped) for cell in cells)) for name in names]
    rivals = [name for name in names if not name.startswith(_OURS) and not is_bound(name)]
    rows.append(("enrich to the best other", *(_to_best(c, rivals, record) for c in cells)))
    failed = {f"{labels[s]}: {why}" for c in cells for s, why in c["failed"].items()}
    note = "thousand stream rows/s: median of rounds (range); join, and rows of a micro-batch"
    return Sheet(title, ("", *heads), tuple(rows), "; ".join([note, *sorted(failed)]))


def _rate(cell: Record, name: str, dropped: int) -> str:
    if not cell["milliseconds"].get(name):
        return "failed" if name in cell["failed"] else "–"
    return thousands(rates(cell, name, dropped))


def _to_best(cell: Record, rivals: list[str], record: Record) -> str:
    dropped = record["dropped"]
    rival = best(cell, rivals, dropped)
    measured = to(cell, _OURS, rival, dropped)
    return f"{measured.show(unit='×')} {rival}" if measured else "–"


def _memory(record: Record) -> Sheet:
    rows = []
    for entry in record["memory"]:
        about = (
            record["labels"][entry["system"]],
            f"{entry['rows'] / 1e6:g}M",
            format_bytes(entry["memory"]),
        )
        if "failed" in entry:
            rows.append((*about, "failed", "", entry["failed"][:60]))
            continue
        more = {kind: entry["busy"][kind] - entry["idle"][kind] for kind in entry["idle"]}
        rows.append((*about, *(_signed(more[kind]) for kind in ("java", "python", "all"))))
    title = "Memory beyond a session that only reads the stream: left"
    note = (
        "most at one moment, of anonymous and shared memory; Java's heap kept as small as it goes; "
        "files that the operating system holds are not in it"
    )
    heads = ("", "R", "budget of ours", "Java", "Python", "in all")
    return Sheet(title, heads, tuple(rows), note)


def _signed(size: int) -> str:
    return f"{'−' if size < 0 else ''}{format_bytes(abs(size))}"


def _growth(record: Record) -> Sheet:
    """Return rates of large batches and times of small ones: R and budget down."""
    large = max(entry["batch_rows"] for entry in record["growth"])
    rows = []
    for entry in sorted(record["growth"], key=_setting):
        about = (f"{entry['rows']:,}", format_bytes(entry["memory"]), entry["read"])
        if "failed" in entry:
            rows.append((*about, "failed", entry["failed"][:60]))
            continue
        warmed = [t for took in entry["milliseconds"] for t in warm(took, record["dropped"])]
        middle = statistics.median(warmed)
        shown = (
            (f"{entry['batch_rows'] / middle:,.0f}", "")
            if entry["batch_rows"] == large
            else ("", spread(warmed).show(".0f", " ms"))
        )
        rows.append((*about, *shown))
    heads = ("R", "budget", "read", "thousand rows/s", "a small batch")
    small = min(entry["batch_rows"] for entry in record["growth"])
    note = f"large batches have {large:,} rows, small ones {small:,}; medians"
    return Sheet("As the master grows: left, Zipf 1, local[2]", heads, tuple(rows), note)


def _setting(entry: Record) -> tuple[Any, ...]:
    """Return the order in which entries are shown; they were measured in a random one."""
    return entry["rows"], entry["memory"], entry["read"] == "direct", -entry["batch_rows"]


def _cores(record: Record) -> Sheet:
    by_count = core_rates(record)
    one = statistics.median(by_count[1])
    rows = [
        (str(count), thousands(samples), f"{statistics.median(samples) / one:.2f}×")
        for count, samples in by_count.items()
    ]
    title = f"On one processor and on two, batches of {record['cores'][0]['batch_rows']:,}"
    return Sheet(title, ("processors", "thousand rows/s", "to one"), tuple(rows))


def _steady(record: Record) -> Sheet:
    entries = record["steady"]
    rows = [(record["labels"][entry["system"]], *_steadily(entry)) for entry in entries]
    about = entries[0]
    title = (
        f"{about['rate']:,} rows/s, {about['batch']:,} at a time; R = {about['rows']:,}, left, "
        f"Zipf 1, {format_bytes(about['memory'])}"
    )
    heads = ("", "a micro-batch", "p99", "longest", "its rows", "p99 of waiting", "thousand rows/s")
    note = (
        "medians where nothing else is said; a micro-batch takes all that has arrived since the "
        "last; a row waits from its arrival until its batch is committed"
    )
    return Sheet(title, heads, tuple(rows), note)


def _steadily(entry: Record) -> tuple[str, ...]:
    steady = steadily(entry)
    if steady is None:
        return (entry.get("failed", "no batch was done"), *[""] * 5)
    times = [f"{quantile(steady.took, share):,.0f} ms" for share in (0.5, 0.99, 1.0)]
    rows = f"{quantile(steady.taken, 0.5):,.0f}"
    return (*times, rows, f"{quantile(steady.waited, 0.99):,.0f} ms", f"{steady.rate / 1e3:.1f}")


def _flink(record: Record) -> Sheet:
    flink = record["flink"]
    if "failed" in flink:
        return Sheet("Flink's lookup join", ("", "why"), (("left out", flink["failed"]),))
    rows = [
        (entry["how"], *_beside_flink(entry, name), thousands(entry["rates"][name]))
        for entry in flink["cells"]
        for name in entry["rates"]
    ]
    title = (
        f"Flink's lookup join by JDBC, {flink['cached']:,} rows cached; PostgreSQL, "
        f"R = {flink['rows']:,}, Zipf 1"
    )
    return Sheet(title, ("join", "", "budget", "thousand rows/s"), tuple(rows), flink["note"])


def _beside_flink(entry: Record, name: str) -> tuple[str, str]:
    if name not in BESIDE_FLINK:
        return "Flink", "–"
    return f"enrich, {BESIDE_FLINK[name]}", format_bytes(entry["memory"][name])


def _claims(record: Record) -> Sheet:
    rows = [(c.what, c.asked, c.measured, c.verdict) for c in claims(record)]
    return Sheet("What we asked of ourselves", ("", "asked", "measured", ""), tuple(rows))
