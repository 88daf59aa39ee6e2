"""What `adaptive` is on a database: the hot are held, the rest is asked for by lists of keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from semistream.algorithms.database.loop import KeyedEngine
from semistream.engine.algorithm import Algorithm, share
from semistream.engine.plan import Components, Settings

if TYPE_CHECKING:
    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan, Runtime, Task
    from semistream.engine.window import Chunk

__all__ = ["KeyListSettings", "KeyLists"]

_MOST_KEYS = 1 << 16  # in one query
_LARGEST_FETCH = 32 << 20
_A_KEY, _A_NUMBER = 160, 80  # bytes of a key on its way: as an object, as text, in the query
_KEY_COPIES = 6  # of a long key on its way: as an object, as text, escaped, in the query, sent
_COPIES = 4  # of a piece of an answer: as it came, where its fields are, as columns, and its rest
_EXACT, _HASHED = 24, 64  # bytes a row that it takes to find the keys that wait


@dataclass(frozen=True)
class KeyListSettings(Settings):
    """Keys and bytes of a query at most, and bytes of an answer that are taken at a time."""

    by: str = ""
    request_keys: int = 0
    request_bytes: int = 0
    piece_bytes: int = 0


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
    fetch_part: ClassVar[int] = 8
    """What is asked for and answered at a time may have this part of the memory."""

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.6, **_: Any) -> Plan:  # noqa: ANN401
        """Split the budget: output, an answer on its way; cache and window divide the rest."""
        master = task.spec.master
        widest = master.statistics.widest_row
        fetch = max(2048 + 4 * _COPIES * widest, min(task.memory // cls.fetch_part, _LARGEST_FETCH))
        fresh = cls.freshness(task)
        parts = Components(output=task.output_bytes, fetch=fetch, freshness=fresh)
        rest = max(0, task.memory - parts.total - 2 * task.least_window)
        parts = replace(parts, cache=task.cache_bytes(share("cache", cache) * rest))
        cost = task.cost
        each = _EXACT if master.keys.exact else _HASHED
        left = max(0, task.memory - parts.total)
        requests = int(left * each / (each + cost.fixed + cost.factor * cost.least))
        numbers = master.keys.exact and pa.types.is_integer(master.keys.types[0])
        each_key = _A_NUMBER if numbers else _A_KEY
        settings = KeyListSettings(
            by="key lists",
            request_keys=max(1, min(_MOST_KEYS, fetch // 4 // each_key)),
            request_bytes=fetch // 4 // _KEY_COPIES,
            piece_bytes=max(1, fetch * 3 // 4 // _COPIES),
        )
        return task.split(cls.name, replace(parts, requests=requests), settings)

    @classmethod
    def freshness(cls, task: Task) -> int:  # noqa: ARG003 - for those who share a hot set
        """Return the bytes to know which of the host's rows are fresh."""
        return 0

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start an engine that asks for keys."""
        return KeyedEngine(task, plan, cls, runtime)

    @property
    def cache(self) -> Any:  # noqa: ANN401 - a `Held`, None where there is none
        """The rows that are held."""
        return self.engine.fresh.rows

    def admitting(self, chunk: Chunk) -> None:
        """Count keys that were not held."""
        self.engine.fresh.missed(chunk.codes)

    def next_pages(self) -> range:
        """Say that something is to be brought; the engine knows what."""
        return range(1)

    def memory_used(self) -> dict[str, int]:
        """Give the bytes of what is held."""
        return {"cache": self.engine.fresh.nbytes}
