"""Derakhshan's operator: an LRU cache, misses in batches, output in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.algorithms.published.parts.ordered import ARRIVAL, Ordered
from semistream.arrow.columns import varying_room
from semistream.arrow.memory import take_rows
from semistream.arrow.types import plain_schema
from semistream.engine.algorithm import share
from semistream.engine.cache import Cache
from semistream.engine.engine import Engine
from semistream.engine.ranking import keep_best
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan, Runtime, Task

    Codes = npt.NDArray[np.int64]

__all__ = ["Derakhshan"]


class Derakhshan(Hybridjoin):
    """Output rows in the order in which they came; fetch what the cache lacks in batches.

    A row that the LRU cache answers goes out at once if no row before it waits. A row that it does
    not answer waits in a queue, and all that follow behind it. When the queue is full, the master
    rows of all its misses are fetched, each once and in order of pages, and the queue goes out.

    Parameters
    ----------
    cache
        The cache's share of the memory that cache, queue and output divide, between 0 and 1.

    Notes
    -----
    From the papers (its abstract, MOIJ's section II and PCSRJ's section 2): the LRU cache of rows,
    the waiting queue whose keys are queried together when it is full, the order of arrival.
    Decided here: what was used last is told by batch, not by row; whole join values are cached; a
    join value that is larger than a page, or than the cache, is joined part by part when its row's
    turn has come; `max_wait` sends the queue out when its first row is due. The paper's two threads
    (hits, misses) are two steps of one.

    References
    ----------
    Derakhshan, Sattar, Stantic: A New Operator for Efficient Stream-Relation Join Processing in
    Data Streaming Engines, CIKM 2013.
    """

    name = "derakhshan"
    paper = "Derakhshan, Sattar, Stantic: A New Operator for Stream-Relation Join, CIKM 2013"
    options = frozenset({"cache"})

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.5, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: a page, output, the cache, the queue, output to be put in order."""
        task = _numbered(task)
        queue, ordered = int(8 * task.window_row), int(8 * task.output_row)
        parts = replace(task.fixed(1), queue=queue, ordered=ordered)
        rest = max(0, task.memory - parts.total - task.least_window) * 3 // 4
        size = task.cache_bytes(share("cache", cache) * rest)
        queue += (rest - size) * 2 // 3
        ordered += (rest - size) // 3
        # It becomes one batch, and of its bytes a third are rows.
        ordered = int(min(ordered, 3 * varying_room(task.spec.output)))
        return task.split(cls.name, replace(parts, cache=size, queue=queue, ordered=ordered))

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start an engine that answers from the cache, and the queue before it."""
        engine = Engine(_numbered(task), plan, cls, replace(runtime, max_wait=None))
        lookup = engine.algorithm
        assert isinstance(lookup, cls)  # noqa: S101 - for mypy
        return Ordered(engine, lookup, task.spec, runtime)

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        super().__init__(engine)
        self._capacity = engine.plan.components.cache
        self.cache: Cache = Cache(engine.master.page_schema, self._capacity)
        self.joins_parts(False)
        s = engine.master.statistics
        value = self.cache.cost(1, engine.master.row_bytes) * max(1.0, s.rows / max(1, s.values))
        self.most_values = max(1, int(self._capacity / 2 / value))
        """Join values that a batch may have for the cache to hold them all."""

    def joins_parts(self, yes: bool) -> None:
        """Say whether a row that the cache does not answer waits for its page, or has no match."""
        self.complete = not yes  # type: ignore[misc] # a property of the class but for this one

    def holds(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """Return which codes the cache answers."""
        return np.isin(codes, self.cache.codes)

    def matches(self, codes: Codes) -> npt.NDArray[np.int64]:
        """Return how many rows of the cache each code has."""
        values, counts = np.unique(self.cache.codes, return_counts=True)
        place = np.searchsorted(values, codes)
        found = np.append(values, 0)[place] == codes
        return np.where(found & (place < len(values)), np.append(counts, 0)[place], 0)

    def used(self) -> None:
        """Note which values were asked for since the last call: they are the youngest now."""
        starts, _ = self.cache.values()
        asked = starts[self.cache.hits[starts] > 0]
        self.cache.born[asked] = self.engine.metrics.rows_in
        self.cache.hits[:] = 0

    def fetch(self, codes: Codes) -> Codes:
        """Fetch the values of these codes into the cache, page by page; return what has no room."""
        needed = np.unique(codes)
        missing = needed[~self.holds(needed)]
        pages = self.engine.master.page_of(missing)
        # Codes in order are pages in order: those of a page are neighbours.
        by_page = np.split(missing, np.flatnonzero(np.diff(pages)) + 1) if len(missing) else []
        left = [some for some in by_page if not self._take(some, needed)]
        self.cache.epoch()
        self.engine.metrics.evicted = self.cache.evicted
        return np.concatenate([needed[:0], *left])

    def _take(self, codes: Codes, needed: Codes) -> bool:
        """Bring values of one page; whether they are here now, or known to be absent."""
        number = int(self.engine.master.page_of(codes[:1])[0])
        if len(self.engine.master.parts(number)) > 1:
            return False
        page = self.engine.read_page(number).batch
        held = page.column(0).to_numpy()
        wanted = codes[np.minimum(np.searchsorted(codes, held), len(codes) - 1)] == held
        rows = take_rows(page, np.flatnonzero(wanted))
        price = self.cache.price(rows)
        if self.cache.claimed + price > self._capacity:
            self.cache.epoch(lambda cache: self._youngest(cache, needed, price))
        if self.cache.claimed + price > self._capacity:
            return False
        born = np.zeros(rows.num_rows, dtype=np.int64)
        self.cache.stage(rows, born, self.engine.metrics.rows_in, price)
        return True

    def _youngest(self, cache: Cache, needed: Codes, price: float) -> npt.NDArray[np.bool_]:
        """Return which rows stay: those needed, and of the others the last used, up to 3/4."""
        starts, rows = cache.values()
        must_stay = np.isin(cache.codes[starts], needed)
        worth = np.where(must_stay, 2**62, cache.born[starts])
        room = min(self._capacity * 3 / 4, self._capacity - price)
        stays, _ = keep_best(worth, rows * cache.mean_row, room)
        return np.repeat(stays | must_stay, rows)


@dataclass(frozen=True)
class _PlainSpec(JoinSpec):
    """A join whose output is plain, so that it can be put in order."""

    @property
    def output(self) -> pa.Schema:
        """The columns that come out, in types that can be gathered."""
        return plain_schema(super().output)


def _numbered(task: Task) -> Task:
    """Return the task of the engine within: rows have a number, output is plain."""
    spec = task.spec
    stream = spec.plain_stream.append(pa.field(ARRIVAL, pa.int64(), nullable=False))
    out = (spec.payload, spec.prefix, spec.mark)
    plain = _PlainSpec(spec.master, stream, spec.how, spec.stream_keys, *out)
    return replace(task, spec=plain)
