"""The conformance suite: what every algorithm must do, whatever its decisions.

Each check takes an algorithm's name, a case, a join type and a folder for the case's master (built
there once and used again), and raises an AssertionError where the algorithm fails. Every check
also keeps an eye on the budget: after each output batch, and after each call.
"""

# ruff: noqa: ANN401 - options are those of a join

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import BudgetError
from semistream.join import Join
from semistream.testing.reference import same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semistream.testing.case import Case

__all__ = [
    "Watched",
    "check_abandoned_results",
    "check_answers",
    "check_drains",
    "check_least_budget",
    "check_same_twice",
    "check_ticks",
    "checks",
    "least_budget",
    "start",
]


class Watched:
    """A join that is observed: its output is kept, its budget and its counters are checked.

    Parameters
    ----------
    join
        The join; all calls must go through this object.
    """

    def __init__(self, join: Join) -> None:
        self.join = join
        self.out: list[pa.RecordBatch] = []
        planned = sum(join.plan.components.values())
        assert planned <= join.plan.memory, f"planned {planned:,} bytes of {join.plan.memory:,}"
        self.within_budget()

    def within_budget(self) -> None:
        """Check that the join holds no more than it may."""
        used, budget = self.join.memory_used, self.join.plan.memory
        assert used.total <= budget, f"holds {used.total:,} of {budget:,} bytes: {dict(used)}"

    def read(self, results: Iterator[pa.RecordBatch], most: int | None = None) -> None:
        """Keep what comes, ``most`` batches of it, then leave the iteration."""
        for count, batch in enumerate(results, 1):
            assert batch.schema.equals(self.join.schema), batch.schema
            assert batch.num_rows, "an empty batch came out"
            batch.validate(full=True)
            self.out.append(batch)
            self.within_budget()
            if count == most:
                break
        self.within_budget()

    def offer(self, batch: pa.RecordBatch) -> None:
        """Offer a batch and read the result to its end."""
        self.read(self.join.offer(batch))

    def finish(self) -> pa.Table:
        """Drain, check that the counters add up, and return all that came out."""
        self.read(self.join.drain())
        metrics = self.join.metrics
        assert self.join.waiting == 0, f"{self.join.waiting} rows wait after drain"
        assert metrics.answered == metrics.rows_in, f"not all rows are answered: {metrics}"
        rows = pa.Table.from_batches(self.out, self.join.schema)
        assert metrics.rows_out == rows.num_rows, f"{rows.num_rows} rows came out: {metrics}"
        return rows


def start(algorithm: str, case: Case, how: str, folder: Path, **options: Any) -> Watched:
    """Open the case's master in ``folder`` and start the join of the case, watched."""
    join = Join(
        case.open(folder),
        case.stream_schema,
        on=case.on,
        how=how,
        memory=case.memory,
        algorithm=algorithm,
        prefix=case.prefix,
        **options,
    )
    resident = bool(join.plan.settings.resident)
    assert case.resident in {None, resident}, f"resident: {resident}; the case wants otherwise"
    return Watched(join)


def _finish(watched: Watched, case: Case, how: str) -> None:
    same_rows(watched.finish(), case.expected(how))
    rows_in = watched.join.metrics.rows_in
    assert rows_in == case.stream_rows, f"{rows_in} rows taken in of {case.stream_rows}"


def check_answers(algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any) -> None:
    """Check that the join has the rows of the reference, payload and all."""
    watched = start(algorithm, case, how, tmp_path, **options)
    for batch in case.stream:
        watched.offer(batch)
    _finish(watched, case, how)


def check_drains(algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any) -> None:
    """Check that nothing is lost or doubled when the join is drained again and again."""
    watched = start(algorithm, case, how, tmp_path, **options)
    watched.read(watched.join.drain())
    for number, batch in enumerate(case.stream):
        watched.offer(batch)
        if number % 3 == 1:
            watched.read(watched.join.drain())
            metrics = watched.join.metrics
            assert not watched.join.waiting
            assert metrics.answered == metrics.rows_in
    watched.read(watched.join.drain())
    _finish(watched, case, how)


def check_ticks(algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any) -> None:
    """Check that ticks alone, between batches and at the end, answer every row in time."""
    watched = start(algorithm, case, how, tmp_path, **options)
    for batch in case.stream:
        watched.offer(batch)
        watched.read(watched.join.tick())
    rounds = watched.join.waiting + case.open(tmp_path).pages + 1
    while watched.join.waiting and rounds:
        watched.read(watched.join.tick())
        rounds -= 1
    assert rounds, f"{watched.join.waiting} rows wait though each page could have come"
    _finish(watched, case, how)


def check_abandoned_results(
    algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any
) -> None:
    """Check that nothing is lost when results are not read to their end, or not at all."""
    watched = start(algorithm, case, how, tmp_path, **options)
    for number, batch in enumerate(case.stream):
        results = watched.join.offer(batch)
        if number % 3:
            watched.read(results, most=number % 3)
        del results
        watched.read(watched.join.drain(), most=1)
        watched.read(watched.join.tick())
    _finish(watched, case, how)


def check_same_twice(algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any) -> None:
    """Check that the same batches give the same output, batch by batch."""
    first, second = (start(algorithm, case, how, tmp_path, **options) for _ in range(2))
    for batch in case.stream:
        first.offer(batch)
        second.offer(batch)
    first.finish()
    second.finish()
    assert len(first.out) == len(second.out)
    for number, (a, b) in enumerate(zip(first.out, second.out, strict=True)):
        assert a.equals(b), f"output batch {number} differs"


def check_least_budget(
    algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any
) -> None:
    """Check that the least budget, which a refusal names, works, as do larger ones, none less."""
    least = least_budget(algorithm, case, how, tmp_path, **options)
    enough, below = (replace(case, memory=m, resident=None) for m in (least, least - 1))
    refusal = _refusal(algorithm, below, how, tmp_path, **options)
    assert f"{least:,} bytes" in refusal, f"one byte less than {least:,} gives: {refusal!r}"
    for more in range(0, 4 * case.page_bytes, case.page_bytes // 4):
        above = replace(enough, memory=least + more)
        refusal = _refusal(algorithm, above, how, tmp_path, **options)
        assert not refusal, f"{least:,} bytes are enough, {more:,} more are not: {refusal}"
    check_answers(algorithm, enough, how, tmp_path, **options)


def least_budget(algorithm: str, case: Case, how: str, tmp_path: Path, **options: Any) -> int:
    """Return the least budget in bytes, as the refusal of a smaller one names it."""
    one_byte = replace(case, memory=1, resident=None)
    refusal = _refusal(algorithm, one_byte, how, tmp_path, **options)
    match = re.search(r"least that works is ([0-9,]+) bytes", refusal)
    assert match, f"no least budget is named: {refusal!r}"
    return int(match[1].replace(",", ""))


def _refusal(algorithm: str, case: Case, how: str, folder: Path, **options: Any) -> str:
    """Return the message with which the case's budget is refused, nothing where it is not."""
    try:
        start(algorithm, case, how, folder, **options)
    except BudgetError as error:
        return str(error)
    return ""


def checks() -> list[Callable[..., None]]:
    """Return all checks."""
    return [
        check_answers,
        check_drains,
        check_ticks,
        check_abandoned_results,
        check_same_twice,
        check_least_budget,
    ]
