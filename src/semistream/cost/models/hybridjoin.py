"""Models of INLJ and HYBRIDJOIN: the page of a row comes, by itself or for all that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cost.loop import Loop
from semistream.cost.queue import oldest_first

if TYPE_CHECKING:
    from semistream.cost.models.base import Setting

__all__ = ["hybridjoin", "inlj"]


def inlj(s: Setting) -> Loop:
    """One page a row that may have a match; the window is a stream buffer."""
    known = s.known_absent
    return Loop(
        w_S=1.0,
        w_F=known / (1 - known),
        silent=s.silent / (1 - known),
        read_bytes=s.page_bytes,
        output=s.duplicates,
        window_bytes=s.component("window"),
    )


def hybridjoin(s: Setting) -> Loop:
    """Bring the page of the oldest row (X-HYBRIDJOIN's equations 1 to 3 without a second part).

    The paper gives no formula for w; see `oldest_first`.
    """
    window = s.component("window")
    return s.loop(oldest_first(s.groups(), s.waiting(window)), window)
