"""Lists of keys where several joins on a host hold what is warm together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.algorithms.database.key_lists import KeyLists

if TYPE_CHECKING:
    from semistream.engine.plan import Plan, Task
    from semistream.hotset.rows import HostRows

__all__ = ["SharedKeyLists"]

_NOTHING = 1e-9
_ABSENT = 0.1  # the part for absent keys, where the host's hot set cannot have them


class SharedKeyLists(KeyLists):
    """Key lists whose hot set is the host's: it outlives the join, and its process."""

    fetch_part = 2
    counted = 0

    @classmethod
    def plan(cls, task: Task, *, cache: float = 0.0, **_: Any) -> Plan:  # noqa: ANN401, ARG003
        """Split what is this join's: output, an answer on its way; the window has the rest."""
        exact = task.spec.master.keys.exact
        return super().plan(task, cache=_NOTHING if exact else _ABSENT)

    @classmethod
    def freshness(cls, task: Task) -> int:
        """Return the bytes of the marks that each task has of the host's rows."""
        return 0 if task.host is None else task.host.freshness

    @property
    def _host(self) -> HostRows:
        return self.engine.fresh  # type: ignore[return-value] # see `KeyedEngine`

    def probed(self) -> None:
        """Let others overwrite the hot set: while a row waits, no one needs it."""
        self._host.probed()

    def admitted(self) -> None:
        """Make the next hot set, if there is enough for it."""
        rows = self.engine.metrics.rows_in
        self._host.publish(rows - self.counted)
        self.counted = rows

    def close(self) -> None:
        """Leave to the others what was learnt."""
        self.admitted()
        self._host.close()

    def memory_used(self) -> dict[str, int]:
        """Give the bytes of what this join holds, and of all that the host holds."""
        held = super().memory_used() | {"freshness": self._host.freshness}
        return held | self._host.memory_used
