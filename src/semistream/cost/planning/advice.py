"""Advice: when semistream is the wrong tool, and what a plan could do better."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semistream.algorithms import choose
from semistream.cost.models import Setting, kind_of, loop_of
from semistream.cost.planning.batch import batch_of
from semistream.cost.planning.question import is_mapped, is_whole
from semistream.cost.planning.rates import format_rate
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.units import format_bytes

if TYPE_CHECKING:
    from semistream.cost.planning.answers import Answer
    from semistream.cost.planning.question import Question
    from semistream.cost.planning.result import Planning

__all__ = ["advise"]

_BROADCAST = 20
"""Bytes that Spark's broadcast join needs for a byte of the master: 240 MB needed 4.6 GB."""
_FAR = 2.0  # times the rate that is asked for
_WANTED = 0.9  # of the pages: then a batch asks for the whole master
_SLOWER = 2.0  # times the least that a batch join takes
_GAIN = 1.02


def advise(planning: Planning) -> list[str]:
    """Give plain sentences, each only where it holds."""
    rules = (_whole, _broadcast, _mapped, _batch, _slow, _filter)
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
    size = planning.question.spec.files.statistics.bytes
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


def _mapped(planning: Planning) -> list[str]:
    winner = planning.winner
    if not (winner and winner.prediction and is_mapped(winner.prediction)):
        return []
    size = format_bytes(planning.question.spec.files.manifest.pages_bytes)
    return [
        f"{winner.algorithm} looks rows up in mapped pages: the prediction holds as long as the "
        f"operating system keeps the master's {size} in memory beside the budget. Where it cannot, "
        "plan with read='direct'."
    ]


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
    absent, stored = question.demand.absent, question.spec.files.manifest.filter_words
    if not (winner and winner.prediction and absent) or stored:
        return []
    if is_whole(winner.prediction) or is_mapped(winner.prediction):
        return []
    words = _filter_words(question, winner.memory)
    better = _with_filter(question, winner, words)
    if better < _GAIN * winner.rate:
        return []
    large = ", and filter=True for the join" if 8 * words > winner.memory // 16 else ""
    return [
        f"{absent:.1%} of the stream's rows have no match, and the master has no filter, so they "
        f"wait for a page like others. Build the master with one (filter=True{large}; "
        f"{format_bytes(8 * words)} of the budget): {winner.algorithm} is predicted to reach "
        f"{format_rate(better)} rows/s instead of {format_rate(winner.rate)}."
    ]


def _filter_words(question: Question, memory: int) -> int:
    """Give the filter that a plan takes by itself, or else the largest one it can be told to."""
    values = question.spec.files.statistics.values
    sizes = (KeyFilter.affordable(filter_words(values), values, memory // n) for n in (16, 2))
    return next((words for words in sizes if words), 0)


def _with_filter(question: Question, winner: Answer, words: int) -> float:
    """Predict the winner's rate with a filter, which takes its bytes from the budget."""
    name, read, left = winner.algorithm, question.spec.files.read, winner.memory - 8 * words
    if not words or question.predict(name, left) is None:
        return 0.0
    _, task, plan = choose(name, question.spec, left, None, {})
    kind, costs = kind_of(plan), question.costs
    filtered = replace(task, filter_words=words)
    setting = Setting(filtered, plan, question.demand, costs.fit(kind, read))
    loop = loop_of(setting)
    return loop.nodes * loop.w / costs.c_loop(kind, loop, setting.shape, read)
