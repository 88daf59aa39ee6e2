"""CACHEJOIN: equations 1 to 3 of Naeem et al.: Parallelisation of CACHEJOIN, for one node.

A cache H_R of the h_R most frequent tuples of R answers w_N stream tuples of an iteration, the
others wait for the page of the oldest. The paper prints no w_N and w_S; here they follow from
Zipf's law and the turns of the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from papers.equations.harmonic import hit, pages_evenly
from papers.equations.queue import any_page, oldest_page
from papers.equations.symbols import Costs, Sizes


@dataclass(frozen=True)
class Served:
    """The stream tuples of an iteration.

    Parameters
    ----------
    w_n
        w_N: answered by the cache.
    w_s
        w_S: answered by the page that came, or found to have no match.
    """

    w_n: float
    w_s: float

    @property
    def w(self) -> float:
        """All of them: w = w_N + w_S."""
        return self.w_n + self.w_s


def memory(m: float, h_r: float, sizes: Sizes) -> dict[str, float]:
    """Return the bytes of each component (equation 1 for one node).

    As in X-HYBRIDJOIN the printed equation is M = M. What it is for is h_S, the room of H_S.

    Examples
    --------
    >>> memory(1_000_000, 1000, Sizes(r_t=2e6, v_p=60_000))
    {'disk buffer': 60000.0, 'cache': 120000.0, 'hash table': 728888.88..., 'queue': 91111.11...}
    """
    parts = {"disk buffer": float(sizes.v_p), "cache": h_r * sizes.v_r}
    return parts | sizes.window(m - sum(parts.values()))


def served(m: float, h_r: float, sizes: Sizes, *, averaged: bool = False) -> Served:
    """Return w_N and w_S for a cache of h_R tuples within m bytes.

    p_N is the cache's share of the stream, by harmonic sums. R is in the order of keys, so that
    what the cache leaves is spread evenly over the pages. ``averaged`` takes the page that comes
    for any page, as equation 6 of Tuned X-HYBRIDJOIN does.

    Examples
    --------
    >>> both = served(50e6, 10_000, Sizes(r_t=2e6, v_p=60_000))
    >>> round(both.w_n), round(both.w_s)
    (417, 226)
    """
    h_s = sizes.h_s(m - h_r * sizes.v_r - sizes.v_p)
    pages, p_n = pages_evenly(h_r, sizes), hit(h_r, sizes)
    w = any_page(h_s, pages) if averaged else oldest_page(h_s, pages, sizes.absent)
    return Served(w * p_n, w * (1 - p_n))


def c_loop(served: Served, sizes: Sizes, costs: Costs, *, printed: bool = False) -> float:
    """Return the seconds of an iteration (equation 2 for one node).

    As printed, only the w_N tuples that the cache answers pay for a look-up in it. In the paper's
    own algorithm (line 5) the w_S others pay as well; corrected, they do.

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=2e6, v_p=60_000), Costs(Read(1e6, 10.0), c_h=100.0)
    >>> both = Served(w_n=400.0, w_s=200.0)
    >>> [round(c_loop(both, sizes, costs, printed=p), 5) for p in (True, False)]
    [0.00169, 0.00171]
    """
    found = sizes.m * (1 - sizes.absent * served.w / served.w_s) if served.w_s else 0.0
    missed = costs.queued(found) + (0.0 if printed else costs.c_h)
    page = costs.c_io(sizes.v_p) + sizes.d * (costs.c_h + costs.c_f)
    return 1e-9 * (page + served.w_s * missed + served.w_n * costs.cached(sizes.m))


def service_rate(
    m: float, h_r: float, sizes: Sizes, costs: Costs, *, printed: bool = False
) -> float:
    """Return μ, tuples a second, for a cache of h_R tuples within m bytes (equation 3).

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=2e6, v_p=60_000), Costs(Read(1e6, 10.0))
    >>> [round(service_rate(50e6, h_r, sizes, costs)) for h_r in (0, 1000, 10_000)]
    [144505, 286136, 401566]
    """
    both = served(m, h_r, sizes, averaged=printed)
    return both.w / c_loop(both, sizes, costs, printed=printed)
