"""One join under measurement: the time it takes, and what it answers in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from semistream.join import Join

_WARM_ROWS = 250_000  # answered before a cache is warm: at 1 % of R, it changes that long once full
_LONGEST_FILL = 10.0  # seconds in which any window is full
_GROWTH = 1.02  # a cache that grew less than this in a turn is as good as full
_LONGEST_TURN = 40  # times its seconds after which a slice ends, wherever the join is


def one_thread() -> None:
    """Let Arrow use one thread, as all that is measured here."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


class Run:
    """A join that is fed batches, a step at a time.

    A step ends with a joined batch or with the end of an offered one, whichever comes first; so a
    sample of a slow algorithm need not last until a whole batch of the stream is answered.
    """

    def __init__(self, join: Join, batches: Iterator[pa.RecordBatch]) -> None:
        self.join = join
        self.most_used = 0
        self._spent = self._worked = 0.0
        self._taken = self._read = 0
        self._turned = False
        self._batches = batches
        self._results: Iterator[pa.RecordBatch] | None = None

    def step(self) -> float:
        """Do one step; return the seconds it took, the making of stream batches not counted."""
        batch = next(self._batches) if self._results is None else None
        start, working = time.perf_counter(), time.process_time()
        if batch is not None:
            self._results = self.join.offer(batch)
        assert self._results is not None  # noqa: S101 - for the type checker
        out = next(self._results, None)
        spent = time.perf_counter() - start
        self._spent += spent
        self._worked += time.process_time() - working
        if out is None:
            self._results = None
        self.most_used = max(self.most_used, self.join.memory_used.total)
        self._note_turn()
        return spent

    def _note_turn(self) -> None:
        """See whether rows were taken in after pages had been read: a turn of the join ends so."""
        metrics = self.join.metrics
        self._turned = metrics.rows_in > self._taken and metrics.pages_read > self._read
        self._taken = metrics.rows_in
        if self._turned:
            self._read = metrics.pages_read

    @property
    def is_within_batch(self) -> bool:
        """Whether an offered batch is not yet taken in to its end."""
        return self._results is not None

    @property
    def window_rows(self) -> int:
        """How many rows wait when the window is full; some plans do not say, then those now."""
        return self.join.plan.settings.window_rows or max(1, self.join.waiting)

    def warm_up(self, seconds: float, longer: float = 1.0) -> None:
        """Fill the window, then let caches settle.

        The window is turned over, in at most so many seconds; where a cache answers, `_WARM_ROWS`
        rows are answered, and it goes on for as long as caches still grow, for at most ``longer``
        times as many. Filling is always done.
        """
        spent = 0.0
        while not self._is_full() and spent < _LONGEST_FILL:
            spent += self.step()
        end, spent = self.join.metrics.answered + _WARM_ROWS, self._turn_over(seconds)
        if not self.join.metrics.cache_hits:
            return  # nothing has to settle
        grown, most = 0, longer * seconds
        while spent < most and (
            self.join.metrics.answered < end or self.most_used > _GROWTH * grown
        ):
            grown = self.most_used
            spent += self._turn_over(most - spent)

    def _is_full(self) -> bool:
        """Check whether the window was full: pages are read then, unless rows never wait."""
        metrics = self.join.metrics
        return metrics.pages_read > 0 or metrics.answered > self.window_rows

    def _turn_over(self, seconds: float) -> float:
        """Answer as many rows as the window has; return the seconds it took."""
        end, spent = self.join.metrics.answered + self.window_rows, 0.0
        while self.join.metrics.answered < end and spent < seconds:
            spent += self.step()
        return spent

    def sample(self, seconds: float) -> float:
        """Return the rows answered in a second.

        It lasts so many seconds, and until the window was turned over, for which it has three
        times as long: rows are admitted by quarters of a window, and a shorter sample would catch
        either the cheap rows that a cache answers or the dear ones that wait for pages.
        """
        before, spent = self.join.metrics.answered, self.spend(seconds)
        end = before + self.window_rows
        while self.join.metrics.answered < end and spent < 3 * seconds:
            spent += self.step()
        return (self.join.metrics.answered - before) / spent

    def watch(self, seconds: float) -> float:
        """Go on for so many seconds, and to the end of a turn; return those that it took.

        A join takes rows in, of which a cache answers some at once, and then reads pages for the
        others: it is fast, then slow. Only whole turns tell its rate. Where all of the master is at
        hand there are none.
        """
        looked_up = self.join.metrics.looked_up
        spent = self.spend(seconds)
        if self.join.plan.settings.resident or self.join.metrics.looked_up > looked_up:
            return spent
        while not self._turned and spent < _LONGEST_TURN * seconds:
            spent += self.step()
        return spent

    def spend(self, seconds: float) -> float:
        """Go on for so many seconds; return those that it took."""
        spent = 0.0
        while spent < seconds:
            spent += self.step()
        return spent

    def facts(self) -> dict[str, Any]:
        """Return what a record keeps beside the samples.

        ``cpus`` is the processor time of all threads to the time of the clock: more than 1 tells
        that others than the caller's thread worked too.
        """
        metrics = self.join.metrics
        return {
            "answered": metrics.answered,
            "pages_read": metrics.pages_read,
            "cache_hits": metrics.cache_hits,
            "looked_up": metrics.looked_up,
            "memory_used": self.most_used,
            "cpus": round(self._worked / max(self._spent, 1e-9), 2),
            "plan": dict(self.join.plan.components),
        }
