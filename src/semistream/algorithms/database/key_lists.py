"""`adaptive` on a database: hot rows are cached, the others are queried by lists of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.algorithms.database.loop import KeyedEngine
from semistream.engine.algorithm import Algorithm, share

if TYPE_CHECKING:
    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan, Runtime, Task
    from semistream.engine.window import Chunk

__all__ = ["KeyLists"]

_MOST_KEYS = 1 << 16  # in one query
_LARGEST_FETCH = 32 << 20
_A_KEY, _A_NUMBER = 160, 80  # bytes of a key on its way: as an object, as text, in the query
_KEY_COPIES = 6  # of a long key on its way: as an object, as text, escaped, in the query, sent
_COPIES = 4  # of a piece of an answer: as it came, where its fields are, as columns, and its rest
_NOTHING = 1e-9  # a share must be more than 0
_ABSENT = 0.1  # share for absent keys, where the host's hot set cannot have them: hashed keys
_EXACT, _HASHED = 24, 64  # bytes a row that it takes to find the keys that wait


class KeyLists(Algorithm):
    """Answer the hot from a cache; ask for the others by lists of keys, each key once.

    Rows that the cache does not answer wait in the window. When it is full, is drained, or its
    oldest row is overdue, all keys that wait are fetched, in few queries. Keys that the database
    does not have are remembered, too.

    Parameters
    ----------
    cache
        The cache's share of the memory that cache and window divide, between 0 and 1.
    """

    name = "adaptive"
    paper = ""
    options = frozenset({"cache"})
    engine: KeyedEngine

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.6, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: output, an answer on its way; cache and window divide the rest.

        Where the host keeps the rows, a join has marks of which are fresh, and no cache.
        """
        master = task.spec.master
        widest = master.statistics.widest_row
        fetch_part = 8 if task.host is None else 2  # without a cache, answers may have more
        fetch = max(2048 + 4 * _COPIES * widest, min(task.memory // fetch_part, _LARGEST_FETCH))
        parts = {"output": task.output_bytes, "fetch": fetch}
        if task.host is not None:
            parts["freshness"] = task.host.freshness
            cache = _NOTHING if master.keys.exact else _ABSENT
        rest = max(0, task.memory - sum(parts.values()) - 2 * task.least_window)
        parts["cache"] = task.cache_bytes(share("cache", cache) * rest)
        cost = task.cost
        each = _EXACT if master.keys.exact else _HASHED
        left = max(0, task.memory - sum(parts.values()))
        parts["requests"] = int(left * each / (each + cost.fixed + cost.factor * cost.least))
        numbers = master.keys.exact and pa.types.is_integer(master.keys.types[0])
        each_key = _A_NUMBER if numbers else _A_KEY
        settings: dict[str, int | float | str | bool] = {
            "by": "key lists",
            "request_keys": max(1, min(_MOST_KEYS, fetch // 4 // each_key)),
            "request_bytes": fetch // 4 // _KEY_COPIES,
            "piece_bytes": max(1, fetch * 3 // 4 // _COPIES),
        }
        return task.split(cls.name, parts, settings)

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start an engine that asks for keys."""
        return KeyedEngine(task, plan, cls, runtime)

    @property
    def cache(self) -> Any:  # noqa: ANN401 - a `Held`, None where there is none
        """The rows that are kept."""
        return self.engine.fresh.rows

    def probed(self) -> None:
        """Let others overwrite the hot set: while a row waits, no one needs it."""
        self.engine.fresh.rest()

    def admitting(self, chunk: Chunk) -> None:
        """Count keys that were not held."""
        self.engine.fresh.count_missed(chunk.codes)

    def admitted(self) -> None:
        """Share with others what was learnt."""
        self.engine.fresh.publish(self.engine.metrics.rows_in)

    def next_pages(self) -> range:
        """Return a range that is not empty: the engine knows what to fetch."""
        return range(1)

    def memory_used(self) -> dict[str, int]:
        """Return the bytes held now, by component."""
        return self.engine.fresh.memory_used

    def close(self) -> None:
        """Leave to the others what was learnt."""
        self.admitted()
        self.engine.fresh.close()
