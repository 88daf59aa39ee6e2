"""ADAPTIVE: what each byte of memory earns decides what it holds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.algorithms.worth import BackOff, Progress, cache_pays, far_ahead
from semistream.arrow.memory import take
from semistream.engine.algorithm import Algorithm
from semistream.engine.cache import Cache, CacheCost
from semistream.engine.lookup import Lookup, page_faults
from semistream.engine.output import gathered_schema
from semistream.engine.plan import Settings, TooSmall
from semistream.engine.ranking import MOST_COUNTED, best_that_fit, keep_best, value_starts
from semistream.engine.sketch import Sketch
from semistream.errors import OptionError
from semistream.kernels.chains import WAITING, count_waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from semistream.engine.output import Pairs
    from semistream.engine.plan import Components, Plan, Task
    from semistream.engine.window import Chunk
    from semistream.master import FileMaster
    from semistream.spec import JoinSpec

    Rows = npt.NDArray[np.int64]

__all__ = ["MOST_SWEEPS", "Adaptive"]

MOST_SWEEPS = 16  # no row waits for more
_LARGEST_OUTPUT = 8 << 20  # bytes of a batch of look-ups, however large the budget
_MOST_WAITING = 4096  # rows; pages with more are alike: the histogram of counts stays small
_IN_FLIGHT = 4 << 20  # bytes of pages: 32 reads of 128 KB keep a disk busy, more only take memory
_FEW_READS = 16  # pages in flight at least, however large
_HELD = 0.98  # fraction of a sample that must lie in memory for look-ups: one page of 64 may not
_SAMPLED = 8  # while nothing is cached, one row in so many is counted
_RARE = 256  # rows for which one wait for the disk is rare enough


@dataclass(frozen=True)
class AdaptiveSettings(Settings):
    """Whether rows are looked up at once, whatever the operating system holds."""

    at_once: bool | None = None


class Adaptive(Algorithm):
    """Look rows up at once where pages lie in memory; else answer the hot, and sweep for the rest.

    A mapped master whose pages the operating system holds needs no window: rows are looked up in
    the pages themselves, many in one compiled call; matches come out in order of arrival. As soon
    as that has to wait for the disk, and on direct reads, a cache answers the keys that are
    frequent for their bytes, the others wait, and a sweep brings the pages that most rows wait for.

    Parameters
    ----------
    at_once
        Whether to look rows up at once, where that is possible: on mapped pages, if the budget
        holds a directory of them, and all columns are flat. None lets what the operating system
        holds, and page faults, decide.

    Notes
    -----
    *Sweep*: as many pages as it takes to free a quarter of the window, those with most waiting
    rows, in the order of the disk, neighbours in one read, the next ones read while one is
    matched. When the join is drained, all pages that are waited for: a scan that leaves gaps.
    *Bound on age*: a row is answered by the 16th sweep after its arrival at the latest; between
    two sweeps no more rows enter than the window has room for.
    *Cache*: a sketch counts the keys that were not in the cache; a key enters if it was asked for
    more often, for its bytes, than the last that had to go. Where none does for long, 16 batches of
    output are passed over for each that is looked at. A cache that does not pay (`cache_pays`) is
    given up, until keys that are asked for far more often than usual would pay. All counts are
    halved after every ten times as many stream rows as the cache has room for (eighty while there
    is none, for of these one in eight is counted), so it follows a stream that drifts.
    *Split*: a byte of the window saves page reads (their number is inverse to its size), a byte of
    the cache saves the rows that its coldest eighth answers, and their share of page reads. Memory
    moves, a sixteenth at a time, to where a byte saves more.
    """

    name = "adaptive"
    paper = "semistream's own: looks up what is in memory, sweeps for the rest"
    options = frozenset({"at_once"})
    pages_share = 8
    """One part in so many of the memory is for pages in flight."""
    staging_share = 16
    """One part in so many of what is divided then holds rows on their way into the cache."""

    @classmethod
    def plan(cls, task: Task, *, at_once: bool | None = None, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: pages in flight, output, look-up; cache and window divide the rest."""
        if at_once is not None and not isinstance(at_once, bool):
            raise OptionError.unknown("at_once", str(at_once), ("None", "True", "False"))
        parts, settings = cls._components(task, at_once, True)
        least = task.memory // 4  # of the budget; reads in flight are not worth a smaller window
        if parts.lookup or task.memory - parts.total >= least:
            try:
                return task.split(cls.name, parts, settings)
            except TooSmall:
                pass
        return task.split(cls.name, *cls._components(task, at_once, False))

    @staticmethod
    def _least_window(task: Task, parts: Components) -> int | None:
        rest = task.memory - parts.total
        largest = CacheCost.of(_cached(task.spec)).largest - parts.cache  # with what is staged
        return int(max(task.least_window, rest // 16, rest - largest))

    @staticmethod
    def _sketch_bytes(task: Task) -> int:
        return max(8, task.memory // 32)

    @staticmethod
    def _most_staged(task: Task) -> float:  # noqa: ARG004 - of a host's hot set it depends on that
        return float("inf")

    @classmethod
    def _components(
        cls, task: Task, at_once: bool | None, generous: bool
    ) -> tuple[Components, AdaptiveSettings]:
        """Return all but the window; a small budget has no look-up and reads one page at a time."""
        page, master = max(1, task.page_bytes), task.spec.master
        most = max(_FEW_READS, _IN_FLIGHT // page)
        pages = min(most, max(2, task.memory // cls.pages_share // page)) if generous else 1
        pages = min(pages, max(1, master.pages))
        run = max(1, pages // 4)
        settings = AdaptiveSettings(buffer_pages=pages, run_pages=run)
        blocks = task.directory_line * run
        parts = replace(task.fixed(pages), output=task.output_bytes, blocks=blocks)
        if generous and at_once is not False and blocks and master.is_mapped:
            output = max(task.output_bytes, min(task.memory // 2, _LARGEST_OUTPUT))
            rows = max(1, int(output / (28 + task.output_row)))
            cost = Lookup.cost(task.spec.files, gathered_schema(task.spec).names, rows)
            if cost <= task.memory // 4:
                parts = replace(parts, output=output, lookup=cost)
                settings = replace(settings, output_rows=rows, at_once=at_once or None)
        each = 4 if task.spec.files.index.first_part is None else 5
        parts = replace(parts, counters=each * master.pages + cls._sketch_bytes(task))
        rest, largest = task.memory - parts.total, CacheCost.of(_cached(task.spec)).largest
        staged = min(max(0, rest) // cls.staging_share, largest / 4, cls._most_staged(task))
        parts = replace(parts, cache=int(staged))
        return parts, replace(settings, least_window=cls._least_window(task, parts))

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self._schema = _cached(engine.spec)
        self._staging = engine.plan.components.cache
        self._several = _several(engine.spec.files)
        self._counts = np.zeros(engine.master.pages, dtype=np.int32)
        self._cut = False  # whether the last row that was collected has more pairs
        self._back_off = BackOff()
        self._pays, self._share = True, 0.0
        self._make_cache(engine)
        self._sweeps: deque[int] = deque(maxlen=MOST_SWEEPS - 1)
        self._hand = 0
        self._forced = bool(engine.plan.settings.at_once)
        self._faults, self._seen_pages, self._patience = page_faults(), 0, _RARE
        self.at_once = engine.lookup is not None and self._in_memory()

    def _make_cache(self, engine: Any) -> None:  # noqa: ANN401
        self._divided = engine.plan.components.window  # what cache and window have together
        self.cache: Cache = Cache(self._schema, self._divided)
        self._largest_cache = self._divided - engine.least_capacity
        self._least_cache = min(self._divided // 32, self._largest_cache)
        self._target = min(self._divided // 4, self._largest_cache)
        self._row = self.cache.cost(1, engine.master.row_bytes)
        self._sketch = Sketch(self._sketch_bytes(engine.task))
        self._threshold = 1.0  # how often a row must have been asked for to be cached
        self._missed = 0
        self._sketched = 0.0  # by the sketch, as it has aged
        self._since = Progress()
        self._filled: Progress | None = None  # what was when the cache became half full
        self._hot = self._seen = 0  # rows with keys that would be cached, of how many

    # -- what is answered before the window -------------------------------------------------

    def _in_memory(self) -> bool:
        return self._forced or self.engine.reader.held() >= _HELD

    def note_lookups(self, rows: int, faults: int) -> None:
        """Use the window when looking up has to wait for the disk too often."""
        if faults * _RARE > rows + _RARE and not self._forced:
            self.at_once, self._patience = False, 2 * self._patience
            self._faults, self._seen_pages = page_faults(), self.engine.metrics.pages_read

    def end_round(self) -> int:
        """Look rows up again when pages lie in memory, and sweeps do not wait for the disk."""
        pages = self.engine.metrics.pages_read - self._seen_pages
        if self.engine.lookup is not None and pages >= self._patience:
            faults = page_faults() - self._faults
            self.at_once = 16 * faults < pages and self._in_memory()
            self._faults += faults
            self._seen_pages += pages
        return 0

    def note_output(self, pairs: Pairs) -> None:
        """Stage the join values that were asked for more often than the last that had to go."""
        window, last = self.engine.window, pairs.rows[-1][-1]
        continued, self._cut = self._cut, bool(window.state[last] == WAITING)
        if self._staged_bytes >= self._staging / 2 or self._back_off.skip():
            return
        rows = np.concatenate(pairs.rows)
        codes = window.codes[rows]
        begin, count = _values(rows)  # one value for each window row; those at the ends may be cut
        whole = begin[int(continued) : len(begin) - self._cut]
        _, first, asked = np.unique(codes[whole], return_index=True, return_counts=True)
        if not len(first):
            return
        first += continued
        hits = self._asked(codes[begin[first]])
        least = self._least_hits
        if not self._pays:
            least = far_ahead(hits / count[first], count[first], self._evenly)
        hot = hits > least * count[first]
        if self._several is not None:
            hot &= ~self._several[window.pages[rows[begin[first]]]]
        if not self._pays:
            hot &= count[first] * (self._row + self.engine.master.row_bytes) <= self._staging
            absent = sum(map(len, pairs.absent))
            self._reconsider(int(asked[hot].sum()), len(whole) + absent, least)
        hot &= self._pays
        self._back_off.note(bool(hot.any()))
        begin, count, hits = self._that_fit(begin[first[hot]], count[first[hot]], hits[hot])
        if len(begin):
            chosen = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(count.sum())
            self._stage(codes, pairs, chosen, np.repeat(hits, count))

    def _that_fit(self, begin: Rows, count: Rows, hits: Rows) -> tuple[Rows, Rows, Rows]:
        """Return the hottest values, as many as may be staged."""
        room = (self._staging - self._staged_bytes) / (self._row + self.engine.master.row_bytes)
        fit = best_that_fit(hits / count, count, room)
        return begin[fit], count[fit], hits[fit]

    def _stage(
        self,
        codes: npt.NDArray[np.int64],
        pairs: Pairs,
        chosen: npt.NDArray[np.int64],
        hits: npt.NDArray[np.int64],
    ) -> None:
        index, columns = pa.array(chosen), pairs.right.arrays() if pairs.right else []
        values = [pa.array(codes[chosen]), *(take(column, index) for column in columns)]
        rows = pa.RecordBatch.from_arrays(values, schema=self._schema)
        self._note(rows, hits)

    @property
    def _evenly(self) -> float:
        """How often the sketch would have counted a value if all were asked for alike."""
        values = self.engine.master.statistics.values
        return self._sketched * (1 / max(1, values) + 1 / self._sketch.nbytes)

    def _asked(self, codes: npt.NDArray[np.int64]) -> Rows:
        return self._sketch.estimate(codes)

    @property
    def _least_hits(self) -> float:
        return self._threshold

    @property
    def _staged_bytes(self) -> float:
        return self.cache.staged_bytes

    def _note(self, rows: pa.RecordBatch, hits: Rows) -> None:
        if self._staged_bytes + self.cache.price(rows) <= self._staging:
            self.cache.stage(rows, hits, self.engine.metrics.rows_in)

    def before_admission(self, chunk: Chunk) -> None:
        """Count keys that the cache did not have; some of them, while it has none."""
        some = chunk.codes
        if not self._pays:
            some = np.ascontiguousarray(some[-self._missed % _SAMPLED :: _SAMPLED])
        self._sketch.add(some)
        self._sketched += len(some)
        self._missed += len(chunk)

    def after_admission(self) -> None:
        """Move rows into and out of the cache, when the window has made room for them."""
        cache = self.cache
        if self._pays:
            self._judge()
        period = 10 * max(1024, self._target / self._row) * (1 if self._pays else _SAMPLED)
        if self._passed(self._since).rows > period:
            self._weigh()
        enough = min(max(self._staging / 4, cache.claimed / 16), self._staging / 2)
        staged = cache.staged_bytes >= enough and cache.staged_bytes > 0
        self._divide()
        if (staged or self._held > self._room) and self.engine.window.fits_now():
            cache.epoch(self._most_frequent)
            self.engine.metrics.evicted = cache.evicted
            self._divide()

    def _divide(self) -> None:
        """Leave to the window what the cache does not need until the next epoch."""
        claimed = max(self._held, min(self._room, self.cache.claimed))
        window = max(self.engine.least_capacity, int(self._divided - claimed))
        self.engine.window.capacity = window

    def _reconsider(self, hot: int, rows: int, least: float) -> None:
        """Cache again if it would pay, what is asked for more than ``least`` times at first.

        Output comes page by page: only that of many pages tells which part of the rows is hot.
        """
        self._hot, self._seen = self._hot + hot, self._seen + rows
        if self._seen < max(1024, len(self.engine.window) // 4):
            return
        if cache_pays(self._hot / self._seen, self._share):
            self._pays, self._threshold = True, least
            self._since = self._so_far()
        self._hot = self._seen = 0

    def _judge(self) -> None:
        """Return the cache up if it does not pay, by what it answered while it was half full."""
        if self.cache.claimed < self._target / 2:
            self._filled = None
            return
        self._filled = self._filled or self._so_far()
        passed = self._passed(self._filled)
        asked = passed.hits + passed.missed
        enough = max(1024, 2 * self._target / self._row, len(self.engine.window) / 2)
        if asked > enough and passed.pages:
            self._share = passed.share
            self._pays = cache_pays(passed.hits / asked, self._share)
            self._filled = None

    def _so_far(self) -> Progress:
        metrics = self.engine.metrics
        return Progress(metrics.rows_in, metrics.pages_read, metrics.cache_hits, self._missed)

    def _passed(self, since: Progress) -> Progress:
        """Return what happened since then."""
        return Progress(*(now - then for now, then in zip(self._so_far(), since, strict=True)))

    @property
    def _room(self) -> int:
        """Bytes that the cache may have: none where it does not pay."""
        return self._target if self._pays else 0

    @property
    def _held(self) -> float:
        """Bytes of the rows in the cache, those staged not counted."""
        return self.cache.claimed - self.cache.staged_bytes

    def _most_frequent(self, cache: Cache) -> npt.NDArray[np.bool_]:
        """Return the rows that stay: the values most frequent for their bytes, while room lasts."""
        starts, rows = cache.values()
        sizes = cache.value_bytes(starts, rows)
        stays, lost = keep_best(cache.hits[starts] * self._row / sizes, sizes, self._room)
        self._threshold = min(max(1.0, lost), MOST_COUNTED)
        return np.repeat(stays, rows)

    def _weigh(self) -> None:
        """Move memory to where a byte saves more, and let all counts age."""
        passed = self._passed(self._since)
        self._share = passed.share
        window = passed.share * passed.missed / passed.rows / self.engine.window.capacity
        coldest = self._coldest() / (2 * passed.rows)  # counts are halved: they cover two periods
        cached = coldest * (1 + passed.share) / self._row
        full, step = self.cache.claimed > self._target * 3 / 4, self._divided // 16
        if full and cached > 1.25 * window:
            self._target = min(self._target + step, self._largest_cache)
        elif full and cached < window / 1.25:
            self._target = max(self._target - step, self._least_cache)
        self.cache.hits >>= 1
        self._sketch.age()
        self._sketched /= 2
        self._threshold = max(1.0, self._threshold / 2)
        self._since = self._so_far()

    def _coldest(self) -> float:
        """Return the mean hits of a row in the cache's coldest eighth."""
        starts, rows = self.cache.values()
        if not len(starts):
            return 0.0
        worth = self.cache.hits[starts] / rows
        eighth = max(1, len(worth) // 8)
        return float(np.partition(worth, eighth - 1)[:eighth].mean())

    # -- which pages come next --------------------------------------------------------------

    def next_pages(self) -> range:
        """Choose the page of the oldest row."""
        return self.around_oldest()

    def next_runs(self) -> Sequence[range]:
        """Choose the pages that most rows wait for, and those of rows that have waited long."""
        window = self.engine.window
        count_waiting(window.pages, window.state, self._counts)
        if self.engine.draining:
            return self._runs(np.flatnonzero(self._counts))
        wanted = self._fullest(max(1, len(window) // 4 - window.gone))
        if len(self._sweeps) == self._sweeps.maxlen:
            old = window.arrived_by(self._sweeps[0])
            waiting = window.pages[:old][window.state[:old] == WAITING]
            wanted = _union(wanted, waiting, len(self._counts))
        self._sweeps.append(self.engine.metrics.rows_in)
        return self._runs(wanted)

    def _fullest(self, rows: int) -> npt.NDArray[np.int64]:
        """Return the pages that most rows wait for, until it is so many rows in all."""
        counts = np.minimum(self._counts, _MOST_WAITING)
        # How many rows are answered by the pages with so many rows or more.
        answered = np.cumsum(np.bincount(counts, weights=self._counts)[::-1])[::-1]
        least = max(1, int(np.searchsorted(-answered, -rows, side="right")) - 1)
        above = int(answered[least + 1]) if least + 1 < len(answered) else 0
        some = np.flatnonzero(counts == least)
        # Of equals, those behind where the last sweep ended: none is passed over again and again.
        some = np.roll(some, -int(np.searchsorted(some, self._hand)))
        some = some[: -(-max(0, rows - above) // least)]
        self._hand = int(some[-1]) + 1 if len(some) else 0
        return _union(some, np.flatnonzero(counts > least), len(counts))

    def _runs(self, pages: npt.NDArray[np.int64]) -> list[range]:
        """Put neighbouring pages together, as many as one buffer has room for."""
        most = self.engine.plan.settings.run_pages or 1
        runs: list[range] = []
        for page in pages.tolist():
            if runs and runs[-1].stop == page and len(runs[-1]) < most:
                runs[-1] = range(runs[-1].start, page + 1)
            else:
                runs.append(range(page, page + 1))
        return runs

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of the cache and of all counters."""
        several = 0 if self._several is None else self._several.nbytes
        counters = self._counts.nbytes + self._sketch.nbytes + several
        return {"cache": self.cache.nbytes, "counters": counters}


def _cached(spec: JoinSpec) -> pa.Schema:
    """Return the columns of the cache: the code, and what is gathered."""
    return pa.schema([spec.master.page_schema.field(0), *gathered_schema(spec)])


def _union(pages: Rows, others: npt.NDArray[Any], total: int) -> Rows:
    """Return these pages and the others, of so many, in ascending order."""
    chosen = np.zeros(total, dtype=np.bool_)
    chosen[pages] = chosen[others] = True
    return np.flatnonzero(chosen)


def _several(master: FileMaster) -> npt.NDArray[np.bool_] | None:
    """Return which pages have several parts, None where none has."""
    first = master.index.first_part
    return None if first is None else np.diff(first, append=len(master.index.code)) > 1


def _values(
    rows: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where the pairs of each window row begin, and how many they are."""
    begin = value_starts(rows)
    return begin, np.diff(begin, append=len(rows))
