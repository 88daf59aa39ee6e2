"""ADAPTIVE where several joins on a host hold what is warm together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.algorithms.adaptive import Adaptive
from semistream.engine.cache import CacheCost

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from semistream.engine.plan import Components, Task
    from semistream.engine.window import Chunk
    from semistream.hotset.state import HostState

__all__ = ["SharedAdaptive"]


class SharedAdaptive(Adaptive):
    """Adaptive whose hot set and sketch are the host's: they outlive the join, and its process.

    What the plan leaves to the window stays the window's. The host's state is opened when a row
    comes that is not looked up at once.
    """

    pages_share = 3  # the cache is not in a task's memory, and its window is small
    staging_share = 4

    @staticmethod
    def _least_window(task: Task, parts: Components) -> int | None:  # noqa: ARG004
        return None  # all of it: nothing moves

    @staticmethod
    def _sketch_bytes(task: Task) -> int:  # noqa: ARG004 - it is the host's
        return 0

    @staticmethod
    def _most_staged(task: Task) -> float:
        assert task.host is not None  # noqa: S101 - for the type checker
        return task.host.staged / 2  # or the log would have no room for them, ever

    def _make_cache(self, engine: Any) -> None:  # noqa: ANN401
        self._host: HostState | None = None
        self._counted = 0
        self._row = CacheCost.of(self._schema)(1, engine.master.row_bytes)

    @property
    def host(self) -> HostState:
        """The state that all joins on this host share."""
        if self._host is None:
            assert self.engine.task.host is not None  # noqa: S101 - for the type checker
            self._host = self.engine.task.host.open()
        return self._host

    @property
    def cache(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - `CachedRows`
        """The newest hot set on this host, until `end_probe`; the engine asks before each chunk."""
        return self.host.newest()

    def end_probe(self) -> None:
        """Let others overwrite the hot set: while a row waits, no one needs it."""
        self.host.rest()

    def _asked(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.host.sketch.estimate(codes)

    @property
    def _least_hits(self) -> float:
        return self.host.threshold

    @property
    def _staged_bytes(self) -> float:
        return 0.0  # they are the host's at once

    def _note(self, rows: pa.RecordBatch, hits: npt.NDArray[np.int64]) -> None:
        self.host.stage(rows, hits)

    def before_admission(self, chunk: Chunk) -> None:
        """Count keys that the hot set did not have."""
        self.host.sketch.add(chunk.codes)

    def after_admission(self) -> None:
        """Make the next hot set, if there is enough for it."""
        self._count()
        self.host.publish()

    def _count(self) -> None:
        rows = self.engine.metrics.rows_in
        self.host.count(rows - self._counted)
        self._counted = rows

    def close(self) -> None:
        """Leave to the others what was learnt."""
        if self._host is not None:
            self._count()
            self._host.publish()
            self._host.close()

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of counters, and of all that the host holds."""
        several = 0 if self._several is None else self._several.nbytes
        used = {"counters": self._counts.nbytes + several}
        return used | (self._host.memory_used if self._host else {})
