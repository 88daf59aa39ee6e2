"""How many stream tuples a page finds waiting: by the papers' average, and by whose turn it is.

The papers from HYBRIDJOIN on load the page of the oldest tuple in the queue. Where they give w at
all (Tuned X-HYBRIDJOIN, equation 6), they take the page to be any page, which finds its share of
the queue. But the page of the oldest tuple is the one that was not loaded for longest. It finds
nearly twice as much, as its tuples gathered since its last turn, while the pages in between have on
average half of theirs. And it finds one tuple at least.

In full: let a page have the share q of the stream. From its first tuple after a turn to its next
turn T stream tuples go by, the same T for all pages, since the queue is in order of arrival. Then

- a turn comes after 1/q + T stream tuples and answers 1 + q·T of them;
- the page has on average q·T·(1 + q·T/2) / (1 + q·T) tuples in the queue;
- a tuple without match waits T and is dropped at its turn, without a read.

The second sum over all pages, and the third, are h_S; that gives T. The first sum gives the loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.algorithms.published.parts.oldest_first import Groups, oldest_first

if TYPE_CHECKING:
    from papers.equations.harmonic import Pages

__all__ = ["any_page", "oldest_page", "waiting"]

_LEAST = 1e-12  # of the stream for the pages on disk, should a cache answer all of it


def waiting(h_s: float, pages: Pages, absent: float = 0.0) -> float:
    """Return T: the stream tuples that arrive from a page's first waiting tuple to its turn.

    Examples
    --------
    >>> import numpy as np
    >>> from papers.equations.harmonic import Pages
    >>> round(waiting(5000, Pages(np.array([0.001]), np.array([1000.0]))))
    9099
    """
    return oldest_first(_groups(pages), h_s, absent).wait


def _groups(pages: Pages) -> Groups:
    return Groups(pages.count, pages.share)


def oldest_page(h_s: float, pages: Pages, absent: float = 0.0) -> float:
    """Return w: the stream tuples that go by for each load of the oldest tuple's page.

    Those that a cache or a pinned page answers are among them.

    With n pages of the same share it is y + √(1 + y²), where y = h_S/n: 1 for a short queue, as for
    an index nested-loop join, and 2·h_S/n for a long one.

    Examples
    --------
    >>> import numpy as np
    >>> from papers.equations.harmonic import Pages
    >>> pages = Pages(np.array([0.001]), np.array([1000.0]))
    >>> [round(oldest_page(h, pages), 3) for h in (1, 1000, 100_000)]
    [1.001, 2.414, 200.005]
    """
    return 1 / max(oldest_first(_groups(pages), h_s, absent).reads, _LEAST)


def any_page(h_s: float, pages: Pages) -> float:
    """Return w if the page loaded were any of the n pages, as the papers average: h_S/n/p.

    Examples
    --------
    >>> import numpy as np
    >>> from papers.equations.harmonic import Pages
    >>> any_page(100_000, Pages(np.array([0.001]), np.array([1000.0])))
    100.0
    """
    return h_s / float(pages.count.sum()) / max(pages.total, _LEAST)
