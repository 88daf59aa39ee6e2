"""The decisions in which one semi-stream join differs from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from semistream.engine.cache import Cache
from semistream.engine.engine import Engine
from semistream.errors import OptionError
from semistream.kernels.chains import GONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from semistream.engine.cache import CachedRows
    from semistream.engine.operator import Operator
    from semistream.engine.output import Pairs
    from semistream.engine.pages import Page
    from semistream.engine.plan import Plan, Runtime, Task
    from semistream.engine.window import Chunk

__all__ = ["Algorithm", "positive", "share"]


class Algorithm(ABC):
    """What is answered before the window, which page comes next, which rows leave.

    The engine owns the loop: it calls the methods here and does everything else. A subclass
    overrides `plan` and `next_pages`, and what else makes it what it is.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()
    """Names of the keyword arguments that `plan` takes beside the task."""
    single: ClassVar[bool] = False
    """Whether a page answers only the oldest row, not all that wait for it."""
    frees: ClassVar[bool] = True
    """Whether an answered row leaves at once; else it stays until `end_round` lets it go."""
    counts_matches: ClassVar[bool] = False
    """Whether `note_matches` is called."""
    complete: ClassVar[bool] = False
    """Whether a row that the cache does not answer is known to have no match."""
    cache: CachedRows | None = None
    """Master rows that answer stream rows before they enter the window."""
    at_once: bool = False
    """Whether rows are looked up in pages that lie in memory, and need no window."""
    done: np.uint8 = GONE
    """The state of an answered row."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    @abstractmethod
    def plan(cls, task: Task, **options: Any) -> Plan:  # noqa: ANN401 - each has its own
        """Split the budget among the algorithm's components, or raise `TooSmall`."""

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start the join that was planned: one engine, unless overridden."""
        return Engine(task, plan, cls, runtime)

    # -- what is answered before the window -------------------------------------------------

    def end_probe(self) -> None:
        """Note that the cache was probed for a chunk, and will not be before the next."""

    def note_lookups(self, rows: int, faults: int) -> None:
        """Note that rows were looked up, and how often that had to wait for the disk."""

    def ready(self, rows: int) -> bool:  # noqa: ARG002 - for those who pace the stream
        """Return whether so many rows may enter now, if there is room."""
        return True

    def before_admission(self, chunk: Chunk) -> None:
        """Note rows that are about to enter the window."""

    def after_admission(self) -> None:
        """Note that rows have entered: the window is compact now, memory may be moved."""

    # -- which pages come, which rows leave -------------------------------------------------

    @abstractmethod
    def next_pages(self) -> range:
        """Choose the neighbouring pages to bring next; called while rows are waiting."""

    def next_runs(self) -> Sequence[range]:
        """Choose the page runs that one round brings."""
        return [self.next_pages()]

    def pinned(self) -> Iterable[Page]:
        """Return the pages that stay in memory; they are matched every round."""
        return ()

    def note_matches(self, page: Page, counts: npt.NDArray[np.int64]) -> None:
        """Note how many window rows each row of a page has matched."""

    def note_output(self, pairs: Pairs) -> None:
        """Note pairs of window and master rows that are about to leave."""

    def end_round(self) -> int:
        """Return the end of the window's rows that leave now, at the end of a round."""
        return 0

    # -- memory -----------------------------------------------------------------------------

    def close(self) -> None:
        """Release what outlives the join."""

    def memory_used(self) -> dict[str, int]:
        """Return the bytes of the components that are the algorithm's own: a cache, unless more."""
        return {"cache": self.cache.nbytes} if isinstance(self.cache, Cache) else {}

    def around_oldest(self, count: int = 1) -> range:
        """Return the page of the row that has waited longest, among ``count`` neighbours."""
        window = self.engine.window
        start = int(window.pages[window.oldest]) // count * count
        return range(start, min(start + count, self.engine.master.pages))


def positive(name: str, value: object) -> int:
    """Check an option that counts something.

    Examples
    --------
    >>> positive("k", 0)
    Traceback (most recent call last):
    semistream.errors.OptionError: k=0 is not possible; give a positive int
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        msg = f"{name}={value!r} is not possible; give a positive int"
        raise OptionError(msg)
    return value


def share(name: str, value: object) -> float:
    """Check an option that is a share of the memory.

    Examples
    --------
    >>> share("cache", 1)
    Traceback (most recent call last):
    semistream.errors.OptionError: cache=1 is not possible; give a share of the memory, as cache=0.5
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        msg = f"{name}={value!r} is not possible; give a share of the memory, as {name}=0.5"
        raise OptionError(msg)
    return float(value)
