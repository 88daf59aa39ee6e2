"""A join that goes over from one algorithm to another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semistream.errors import RowTooLargeError
from semistream.metrics import Metrics
from semistream.operator import Operator
from semistream.plan import MemoryUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from semistream.auto.choice import Choice, Room
    from semistream.auto.pilot import Deciding

    Batches = Iterator[pa.RecordBatch]

__all__ = ["Auto"]

_PIECE = 1 << 16  # rows; who offers a whole day in one batch need not wait for the next


class Auto(Operator):
    """Runs what a pilot decides; never two algorithms at a time.

    A pilot is asked when a batch, or 65,536 rows of it, was taken in. If it wants another
    algorithm, the one that runs is drained: its rows come out, with those of the batch. Then its
    memory is given back, and the other begins.

    Parameters
    ----------
    room
        The join, and the memory of the algorithm that runs.
    pilot
        Decides; its memory is beside the room.
    first
        What runs at first.
    clock, max_wait
        As for `Join`.
    estimate
        Bytes that a decision takes for a moment.
    """

    def __init__(
        self,
        room: Room,
        pilot: Deciding,
        first: Choice,
        clock: Callable[[], float],
        max_wait: float | None,
        estimate: int = 0,
    ) -> None:
        self.metrics = Metrics()
        self._estimate = estimate
        self._before = Metrics()
        self._room, self._pilot = room, pilot
        self._clock, self._max_wait = clock, max_wait
        self._running: Operator | None = None
        self._start(first)

    def _start(self, choice: Choice) -> None:
        kind, task, plan = self._room.plan(choice.algorithm, choice.options)
        aside = {"sample": self._pilot.nbytes, "estimate": self._estimate}
        parts = {**plan.components, **aside}
        whole = replace(plan, memory=plan.memory + sum(aside.values()), components=parts)
        self.followed = whole.with_settings(chosen=choice.why)
        self._chosen = choice
        self._running = kind.operator(task, plan, self._clock, self._max_wait)

    @property
    def _operator(self) -> Operator:
        assert self._running is not None  # noqa: S101 - for the type checker; see `_switch`
        return self._running

    @property
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component."""
        used = MemoryUse() if self._running is None else self._running.memory_used
        used["sample"] = self._pilot.nbytes
        return used

    @property
    def waiting(self) -> int:
        """How many rows wait for their page."""
        return 0 if self._running is None else self._running.waiting

    def check(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch with a row that could not be held, before any of it is taken."""
        self._operator.check(batch)

    def run(self, batch: pa.RecordBatch, arrived: float | None = None) -> Batches:
        """Take a batch in; go over to another algorithm where that is decided."""
        now = self._clock() if arrived is None else arrived
        checked = self._chosen
        for start in range(0, max(1, batch.num_rows), _PIECE):
            piece = batch.slice(start, _PIECE)
            if self._chosen is not checked:
                self._check_rest(piece, start)
            yield from self._counted(self._operator.run(piece, now))
            self._pilot.saw(piece)
            choice = self._pilot.decide(self.metrics)
            if choice is not None:
                yield from self._follow(choice)

    def _check_rest(self, piece: pa.RecordBatch, start: int) -> None:
        """Refuse a row that was checked for an algorithm which does not run any more."""
        try:
            self.check(piece)
        except RowTooLargeError as error:
            msg = f"{error} (Counted from row {start} on; {self._chosen.algorithm} runs now.)"
            raise RowTooLargeError(msg) from None

    def _follow(self, choice: Choice) -> Batches:
        if not choice.same(self._chosen):
            yield from self._switch(choice)
        elif self.followed is not None:
            self.followed = self.followed.with_settings(chosen=choice.why)

    def drain(self) -> Batches:
        """Answer every row that waits."""
        yield from self._counted(self._operator.drain())

    def tick(self) -> Batches:
        """Do what is due while nothing arrives."""
        yield from self._counted(self._operator.tick())

    def close(self) -> None:
        """Give everything back; rows that wait are lost."""
        if self._running is not None:
            self._running.close()
        vars(self).clear()

    def _switch(self, choice: Choice) -> Batches:
        """Answer all rows that wait, give the memory back, and begin anew."""
        yield from self.drain()
        left, self._running = self._operator, None
        self._before = self.metrics
        left.close()
        del left
        self._start(choice)

    def _counted(self, work: Batches) -> Batches:
        for batch in work:
            self._tally()
            yield batch
        self._tally()

    def _tally(self) -> None:
        self.metrics = Metrics.total([self._before, self._operator.metrics])
