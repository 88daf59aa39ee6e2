"""The join that users hold: offer batches, take joined ones."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from semistream.algorithms import choose
from semistream.engine.observer import Observer
from semistream.engine.plan import MemoryUse, Runtime
from semistream.errors import (
    JoinClosedError,
    JoinFailedError,
    OptionError,
    SchemaError,
    UnreadOutputError,
)
from semistream.hotset import HostShare
from semistream.master.open import as_master
from semistream.metrics import Metrics
from semistream.spec import JoinSpec
from semistream.units import elapsed, parse_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan
    from semistream.master import Master
    from semistream.spec import On

__all__ = ["Join"]


class Join:
    """A join of a stream of record batches with a master table, within a budget of bytes.

    Parameters
    ----------
    master
        The master table, from `open_master`, or its path.
    stream_schema
        The schema of the batches that will be offered.
    on
        The key: a column that both sides have, a list of them, or a mapping from the stream's
        names to the master's.
    how
        ``"inner"``, ``"left"``, ``"semi"`` or ``"anti"``; Spark's synonyms are known.
    memory
        The budget: bytes as an int, or a string such as ``"64MB"``. It covers everything that the
        join holds; the batch at hand, and output that was given out, are the caller's.
    algorithm
        One of `algorithms`.
    select
        The master columns that come out; all but the key if not given.
    prefix
        Put before the names of the master's columns.
    mark
        For a left join: the name of a last column that tells whether a row has a match.
    max_wait
        Seconds (or a timedelta) that no row waits longer than, while others keep coming, or
        `tick` is called.
    filter
        Whether to use the master's key filter; None lets the plan decide.
    clock
        Gives the time in seconds; for tests.
    shared
        Where, and with how many others, this join shares ``memory`` on its host: what is warm is
        then held once for all, and outlives them.
    observer
        Callbacks for those who study or test a join: what its engines read, and when.
    **options
        Options of the algorithm.

    Notes
    -----
    Rows come out in the order in which they are answered. There is no randomness: the same
    batches give the same output; in the same order, too, except that ``adaptive`` on mapped reads
    looks at what the operating system holds.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> products = pa.table({"product_id": [1, 2], "price": [9.5, 1.25]})
    >>> master = ss.build_master(products, tempfile.mkdtemp(), key="product_id")
    >>> sales = pa.record_batch({"sale": [10, 11, 12], "product_id": [2, 7, 1]})
    >>> join = ss.Join(master, sales.schema, on="product_id", how="left", memory="1MB")
    >>> rows = [row for out in join.offer(sales) for row in out.to_pylist()]
    >>> rows += [row for out in join.drain() for row in out.to_pylist()]
    >>> sorted((row["sale"], row["price"]) for row in rows if row["price"])
    [(10, 1.25), (12, 9.5)]
    """

    def __init__(  # noqa: PLR0913 - a join has these parts; all but two have defaults
        self,
        master: Master | str | os.PathLike[str],
        stream_schema: pa.Schema,
        *,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        algorithm: str = "adaptive",
        select: Sequence[str] | None = None,
        prefix: str = "",
        mark: str | None = None,
        max_wait: float | timedelta | None = None,
        filter: bool | None = None,  # noqa: A002 - the word users look for
        clock: Callable[[], float] = elapsed,
        shared: HostShare | None = None,
        observer: Observer | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        spec = JoinSpec.resolve(as_master(master), stream_schema, on, how, select, prefix, mark)
        _check_kinds(filter, shared, clock, observer)
        self._spec = spec
        size = parse_bytes(memory)
        kind, task, self._plan = choose(algorithm, spec, size, filter, options, shared)
        self.observer = observer or Observer()
        runtime = Runtime(clock, _seconds(max_wait), self.observer)
        self._running: Operator | None = kind.operator(task, self._plan, runtime)
        self._unread: Iterator[pa.RecordBatch] | None = None
        self._failure: BaseException | None = None
        self._last = Metrics()

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out: the stream's, the master's without its key, the mark."""
        return self._spec.output

    @property
    def plan(self) -> Plan:
        """How the budget is split."""
        return self._plan

    @property
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component, with their ``total``; never more than the budget."""
        return MemoryUse() if self._running is None else self._running.memory_used

    @property
    def metrics(self) -> Metrics:
        """What was done so far; a copy."""
        return replace(self._last if self._running is None else self._running.metrics)

    @property
    def waiting(self) -> int:
        """How many rows wait for their page."""
        return 0 if self._running is None else self._running.waiting

    @property
    def _operator(self) -> Operator:
        self._check_alive()
        assert self._running is not None  # noqa: S101 - for the type checker
        return self._running

    def close(self) -> None:
        """Release all memory, and to the host what was learnt; drain before, or rows are lost.

        A second call does nothing; metrics remain.
        """
        if self._running is not None:
            self._last = self._running.metrics
            running, self._running, self._unread = self._running, None, None
            running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def offer(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in a batch of the stream; yield joined batches, as many as are ready.

        The batch is taken in while the result is read: read it to its end. What is left unread is
        not lost, `drain` gives it; but a further offer is refused until then.
        """
        self._check_alive()
        if not isinstance(batch, pa.RecordBatch):
            msg = f"offer takes a RecordBatch, not a {type(batch).__name__}; see Table.to_batches()"
            raise OptionError(msg)
        if batch.schema != self._spec.stream:
            given, wanted = _columns(batch.schema), _columns(self._spec.stream)
            msg = f"the batch has columns {given}; the stream has {wanted}"
            raise SchemaError(msg)
        if self._unread is not None:
            msg = (
                "the result of an earlier offer was not read to its end; read it (for out in "
                "join.offer(batch): …), or call drain()"
            )
            raise UnreadOutputError(msg)
        self._operator.check(batch)
        return self._read(self._operator.run(batch))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer every row that waits; afterwards none does, and the join can go on."""
        return self._read(self._operator.drain())

    def tick(self) -> Iterator[pa.RecordBatch]:
        """Serve a quiet stream: yield the rows that have waited ``max_wait``.

        Without ``max_wait``, do one round of the algorithm's loop, so that repeated calls answer
        everything in the end.
        """
        return self._read(self._operator.tick())

    def _read(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The engine's generators are kept here and not closed with the caller's: an iteration
        # that is broken off goes on with the next call.
        self._check_alive()
        self._unread = itertools.chain(self._unread or (), results)
        return self._results(self._unread)

    def _results(self, mine: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while (batch := self._next(mine)) is not None:
            yield batch
            del batch  # its memory may serve the next one, if the caller has let go of it
        if self._unread is mine:
            self._unread = None

    def _next(self, results: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        self._check_alive()
        try:
            return next(results, None)
        except BaseException as error:
            self._failure = error
            raise

    def _check_alive(self) -> None:
        """Refuse to go on after an error: pages or rows in the middle of work would be lost."""
        if self._running is None:
            msg = "this join was closed, and holds nothing any more; make a new one"
            raise JoinClosedError(msg)
        if self._failure is not None:
            msg = (
                f"this join failed before ({self._failure!r}); what it held may be incomplete: "
                "make a new one and offer the stream again from the last point that is safe"
            )
            raise JoinFailedError(msg) from self._failure


def _check_kinds(use_filter: object, shared: object, clock: object, observer: object) -> None:
    if not (use_filter is None or isinstance(use_filter, bool)):
        msg = f"filter={use_filter!r} is not possible; give True, False or None"
        raise OptionError(msg)
    if not (shared is None or isinstance(shared, HostShare)):
        msg = (
            f"shared={shared!r} is no HostShare; give semistream.hotset.HostShare(folder, tasks), "
            "with how many joins run at once on this host"
        )
        raise OptionError(msg)
    if not (observer is None or isinstance(observer, Observer)):
        msg = f"observer={observer!r} is not possible; give an instance of a subclass of Observer"
        raise OptionError(msg)
    if not callable(clock):
        msg = f"clock={clock!r} is no function; give one that returns seconds, as time.monotonic"
        raise OptionError(msg)


def _columns(schema: pa.Schema) -> str:
    nulls = {True: "", False: " not null"}
    return ", ".join(f"{field.name}: {field.type}{nulls[field.nullable]}" for field in schema)


def _seconds(max_wait: float | timedelta | None) -> float | None:
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        msg = f"max_wait={max_wait!r} is not possible; give positive seconds or a timedelta"
        raise OptionError(msg)
    return seconds
