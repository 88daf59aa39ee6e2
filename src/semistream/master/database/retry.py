"""How often, and after which pauses, an error that may pass is tried again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Retry"]


@dataclass(frozen=True)
class Retry:
    """Pauses that double, up to a longest, each cut by chance to between a half and all of it.

    Examples
    --------
    >>> now = iter([0, 0, 1, 3, 7])
    >>> retry = Retry(limit=5, first=1, clock=lambda: next(now), sleep=print, chance=lambda: 1.0)
    >>> [attempt for attempt in retry.attempts()]
    1.0
    2.0
    [1, 2, 3]
    """

    limit: float = 60.0
    """Seconds after the first failure in which attempts begin."""
    first: float = 0.1
    """Seconds of the first pause."""
    most: float = 5.0
    """Seconds of the longest."""
    # Another process's are not the same objects, though the same otherwise.
    clock: Callable[[], float] = field(default=time.monotonic, compare=False)
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False)
    chance: Callable[[], float] = field(default=random.random, compare=False)
    """Gives a number from 0 to 1: those who failed together do not come back together."""

    def attempts(self) -> Iterator[int]:
        """Give the number of each attempt, after its pause; the first comes at once."""
        number, pause = 1, self.first
        yield number
        start = self.clock()
        while True:
            wait = pause * (0.5 + 0.5 * self.chance())
            if self.clock() - start + wait > self.limit:
                return
            self.sleep(wait)
            number, pause = number + 1, min(self.most, 2 * pause)
            yield number
