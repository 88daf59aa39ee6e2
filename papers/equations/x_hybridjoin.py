"""HYBRIDJOIN and X-HYBRIDJOIN: equations 1 to 3 of Naeem, Dobbie, Weber: X-HYBRIDJOIN.

X-HYBRIDJOIN has one page that is swapped and one that stays; HYBRIDJOIN has the first alone. The
paper prints no w. It follows from equation 6 of the tuned form with k = 1 and l = 1 or 0, as does
all else here.
"""

from __future__ import annotations

from dataclasses import dataclass

from papers.equations import tuned_x_hybridjoin as tuned
from papers.equations.harmonic import hit
from papers.equations.symbols import Sizes

HYBRIDJOIN = tuned.Split(k=1.0, pinned=0.0)
X_HYBRIDJOIN = tuned.Split(k=1.0, pinned=1.0)

memory = tuned.memory
c_loop = tuned.c_loop
service_rate = tuned.service_rate


@dataclass(frozen=True)
class Served:
    """What an iteration answers: ``pinned`` tuples by the page that stays, of w in all."""

    w: float
    pinned: float

    @property
    def saved(self) -> float:
        """The share of stream tuples that need no read."""
        return self.pinned / self.w


def served(
    m: float, sizes: Sizes, split: tuned.Split = X_HYBRIDJOIN, *, printed: bool = False
) -> Served:
    """Return the stream tuples that an iteration answers, and those by the non-swappable part.

    Examples
    --------
    >>> both = served(50e6, Sizes(r_t=2e6, v_p=60_000), printed=True)
    >>> round(both.w), round(both.pinned), round(both.saved, 3)
    (210, 95, 0.45)
    """
    tuples = tuned.w(tuned.h_s(m, split, sizes), split, sizes, printed=printed)
    return Served(tuples, tuples * hit(split.pinned * sizes.d, sizes))
