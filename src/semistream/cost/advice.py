"""Advice: when semistream is the wrong tool, and what a plan could do better."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semistream.algorithms import choose
from semistream.cost.batch import batch_of
from semistream.cost.models import Setting, loop_of
from semistream.cost.question import is_whole
from semistream.cost.rates import format_rate
from semistream.master.filter import KeyFilter, filter_words
from semistream.units import format_bytes

if TYPE_CHECKING:
    from semistream.cost.answers import Answer
    from semistream.cost.planning import Planning
    from semistream.cost.question import Question

__all__ = ["advise"]

_BROADCAST = 20
"""Bytes that Spark's broadcast join needs for a byte of the master: 240 MB needed 4.6 GB."""
_FAR = 2.0  # times the rate that is asked for
_WANTED = 0.9  # of the pages: then a batch asks for the whole master
_SLOWER = 2.0  # times the least that a batch join takes
_GAIN = 1.02


def advise(planning: Planning) -> list[str]:
    """Give plain sentences, each only where it holds."""
    rules = (_whole, _broadcast, _batch, _slow, _filter)
    return [sentence for rule in rules for sentence in rule(planning)]


def _whole(planning: Planning) -> list[str]:
    winner = planning.winner
    if not (winner and winner.prediction and is_whole(winner.prediction)):
        return []
    return [
        f"{format_bytes(winner.memory)} hold the whole master: every algorithm then simply keeps "
        "it in memory, and which one is chosen makes no difference. A semi-stream join is for "
        "less; any hash join does the same here."
    ]


def _broadcast(planning: Planning) -> list[str]:
    size = planning.question.spec.master.statistics.bytes
    need, memory = _BROADCAST * size, planning.asked.memory or 0
    numbers = (
        f"Spark's broadcast join was measured to need about {_BROADCAST} times the master's bytes "
        f"(4.6 GB for 240 MB), here {format_bytes(need)}"
    )
    if need <= memory:
        return [
            f"semistream is the wrong tool: {format_bytes(memory)} hold the master of "
            f"{format_bytes(size)} many times over. {numbers}: broadcast it."
        ]
    if need <= planning.machine_memory:
        return [
            f"The master of {format_bytes(size)} fits into this machine's "
            f"{format_bytes(planning.machine_memory)} many times over. {numbers}: if that memory "
            "has no other use on every executor, semistream is the wrong tool, broadcast it."
        ]
    return []


def _batch(planning: Planning) -> list[str]:
    rows, winner = planning.asked.batch_rows, planning.winner
    if rows is None or winner is None:
        return []
    batch = batch_of(planning.question, rows)
    ours = rows / winner.rate
    times = (
        f"{rows:,} rows that arrive together ask for {batch.wanted:.0%} of the pages; to join "
        f"them as a stream is predicted to take {ours:.3g} s, a batch join at least "
        f"{batch.seconds:.3g} s ({batch.scan:.3g} s of them to read the master once)"
    )
    if batch.wanted >= _WANTED and ours > _SLOWER * batch.seconds:
        return [f"semistream is the wrong tool for such a batch: {times}. Use a batch join."]
    return [f"Such a batch is no reason for a batch join: {times}."]


def _slow(planning: Planning) -> list[str]:
    rate, winner = planning.asked.rate, planning.winner
    if rate is None or winner is None or planning.cluster:
        return []
    least = planning.question.least_budget(winner.algorithm)
    if winner.memory > least or winner.rate < _FAR * rate:
        return []
    return [
        f"{format_rate(rate)} rows/s is far below what is reached: {winner.algorithm} is predicted "
        f"to answer {format_rate(winner.rate)} with {format_bytes(least)}, the least that works. "
        "Memory beyond it buys nothing."
    ]


def _filter(planning: Planning) -> list[str]:
    winner, question = planning.winner, planning.question
    absent, stored = question.demand.absent, question.spec.master.manifest.filter_words
    if (
        winner is None
        or not absent
        or stored
        or (winner.prediction and is_whole(winner.prediction))
    ):
        return []
    better, size = _with_filter(question, winner)
    if better < _GAIN * winner.rate:
        return []
    return [
        f"{absent:.1%} of the stream's rows have no match, and the master has no filter, so they "
        f"wait for a page like others. Build the master with one (filter=True; {format_bytes(size)}"
        f" of the budget): {winner.algorithm} is predicted to reach {format_rate(better)} rows/s "
        f"instead of {format_rate(winner.rate)}."
    ]


def _with_filter(question: Question, winner: Answer) -> tuple[float, int]:
    """Predict the winner's rate with a filter, which takes its bytes from the budget."""
    name, spec, values = winner.algorithm, question.spec, question.spec.master.statistics.values
    words = KeyFilter.affordable(filter_words(values), values, winner.memory // 2)
    left = winner.memory - 8 * words
    if not words or question.predict(name, left) is None:
        return 0.0, 0
    _, task, plan = choose(name, spec, left, None, {})
    setting = Setting(
        replace(task, filter_words=words),
        plan,
        question.demand,
        question.costs.fit(name, spec.master.read),
    )
    loop = loop_of(setting)
    c_loop = question.costs.c_loop(name, loop, setting.shape, spec.master.read)
    return loop.nodes * loop.w / c_loop, 8 * words
