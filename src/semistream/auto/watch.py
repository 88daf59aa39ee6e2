"""Whether a join still does what its plan said, by counters that do not depend on the clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semistream.metrics import Metrics

__all__ = ["Look", "Watch", "look_of"]

_FACTOR = 1.3  # pages a row, more or less by this, are another stream
_SHARE = 0.15  # as are so many rows in a hundred that are repeated, absent, or hits
_LEAST_PAGES = 1e-5  # a row; fewer do not matter
_COUNTERS = ("rows_in", "answered", "filtered", "absent", "cache_hits", "pages_read")
_PATIENCE, _MOST_PATIENCE = 2, 64  # periods


@dataclass(frozen=True)
class Look:
    """What a stream looks like to a join."""

    pages: float
    """Pages read for a row."""
    hits: float
    """The share of rows that the cache answers."""
    absent: float
    """The share of rows without a match."""
    repeated: float
    """The share of a sample's rows whose key was seen before in it."""

    def change_to(self, other: Look) -> str:
        """Say in what another look differs; nothing where it is much the same."""
        less, more = sorted((self.pages + _LEAST_PAGES, other.pages + _LEAST_PAGES))
        if more > _FACTOR * less:
            return f"{other.pages:.2g} pages a row, not {self.pages:.2g}"
        for name in ("hits", "absent", "repeated"):
            planned, now = getattr(self, name), getattr(other, name)
            if abs(now - planned) > _SHARE:
                return f"{now:.0%} {name}, not {planned:.0%}"
        return ""


def look_of(now: Metrics, since: Metrics, repeated: float) -> Look:
    """Give what a stream looked like between two times.

    Examples
    --------
    >>> from semistream.metrics import Metrics
    >>> look_of(Metrics(answered=300, pages_read=6, cache_hits=50), Metrics(answered=200), 0.2)
    Look(pages=0.06, hits=0.5, absent=0.0, repeated=0.2)
    """
    came, rows, filtered, absent, hits, pages = (
        getattr(now, name) - getattr(since, name) for name in _COUNTERS
    )
    # What the filter tells is known when a row comes, all else when it is answered.
    known = filtered / max(1, came)
    return Look(
        pages=pages / max(1, rows),
        hits=hits / max(1, rows),
        absent=known + (1 - known) * absent / max(1, rows - filtered),
        repeated=repeated,
    )


class Watch:
    """Looks once a period, and asks for a new plan when what it sees differs for long enough.

    Each new plan doubles the patience until the next; it is halved again when as many periods have
    been as planned. So a stream that no plan suits is planned ever less often.
    """

    def __init__(self) -> None:
        self._patience = _PATIENCE
        self._different = self._alike = 0

    def begin(self, planned: Look, period: int, now: Metrics) -> None:
        """Watch for another plan; the first period is not looked at, for caches are cold."""
        self._planned, self._period = planned, period
        self._since, self._next = replace(now), now.answered + period
        self._cold = True
        self._different = self._alike = 0

    def due(self, now: Metrics) -> bool:
        """Whether a period is over."""
        return now.answered >= self._next

    def look(self, now: Metrics, repeated: float) -> tuple[Look, str]:
        """Give what the period looked like; and what is not as planned, for long enough now."""
        seen = look_of(now, self._since, repeated)
        self._since, self._next = replace(now), now.answered + self._period
        if self._cold:
            self._cold = False
            return seen, ""
        change = self._planned.change_to(seen)
        self._different, self._alike = (self._different + 1, 0) if change else (0, self._alike + 1)
        if self._alike >= self._patience:
            self._patience, self._alike = max(_PATIENCE, self._patience // 2), 0
        return seen, change if self._different >= self._patience else ""

    def be_patient(self) -> None:
        """Take longer until the next plan."""
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
