"""An observer that remembers what tests ask for."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from semistream.engine.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semistream.engine.engine import Engine, Ints


class Probe(Observer):
    """Keeps a join's engines and the page runs that they chose.

    Parameters
    ----------
    on_read
        Called before parts are read, with the engine and these.
    """

    def __init__(self, on_read: Callable[[Engine, Ints], object] | None = None) -> None:
        self.engines: list[Engine] = []
        self.runs: list[range] = []
        self.runs_of: dict[Engine, list[range]] = defaultdict(list)
        if on_read is not None:
            self.on_read = on_read

    @property
    def engine(self) -> Engine:
        """The only engine."""
        (engine,) = self.engines
        return engine

    def on_start(self, engine: Engine) -> None:
        self.engines.append(engine)

    def on_pages(self, engine: Engine, runs: Sequence[range]) -> None:
        self.runs += runs
        self.runs_of[engine] += runs
