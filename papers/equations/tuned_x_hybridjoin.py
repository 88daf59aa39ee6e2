"""Tuned X-HYBRIDJOIN: equations 1 to 6 of Naeem: Tuned X-HYBRIDJOIN.

k pages are swapped in at a time beside l pages that stay; R is sorted by access frequency. With
l = 0 this is HYBRIDJOIN, with k = l = 1 X-HYBRIDJOIN. In the copy of the paper at hand equations 1
to 6 are lost; they are derived again from the text around them.
"""

from __future__ import annotations

from dataclasses import dataclass

from papers.equations.harmonic import hit, pages_by_rank
from papers.equations.queue import oldest_page
from papers.equations.search import best
from papers.equations.symbols import Costs, Sizes

_MOST = 0.98  # of the budget for both parts of the disk buffer


@dataclass(frozen=True)
class Split:
    """The disk buffer's pages: k of them swapped, l of them pinned."""

    k: float = 1.0
    pinned: float = 1.0


def memory(m: float, split: Split, sizes: Sizes) -> dict[str, float]:
    """Return the bytes of each component (equation 1).

    The printed equation adds up to M whatever α, k and l are. What it is for is h_S, see `h_s`.

    Examples
    --------
    >>> memory(1_000_000, Split(2, 3), Sizes(r_t=2e6, v_p=20_000))
    {'swappable': 40000, 'non-swappable': 60000, 'hash table': 800000.0, 'queue': 100000.0}
    """
    parts = {"swappable": split.k * sizes.v_p, "non-swappable": split.pinned * sizes.v_p}
    return parts | sizes.window(m - sum(parts.values()))


def h_s(m: float, split: Split, sizes: Sizes) -> float:
    """Return h_S, the stream tuples that the hash table holds: α·(M − (k + l)·v_P)/(f·v_S).

    Examples
    --------
    >>> round(h_s(50e6, Split(), Sizes(r_t=2e6, v_p=60_000)))
    461852
    """
    return sizes.h_s(m - (split.k + split.pinned) * sizes.v_p)


@dataclass(frozen=True)
class Matching:
    """The chance of a queued stream tuple to match in an iteration.

    Parameters
    ----------
    old
        p_old: of one that was in the queue before (equation 4).
    pinned
        p_N: of a new one, with the pages that stay.
    swapped
        p_S: of a new one, with the pages that come.
    """

    old: float
    pinned: float
    swapped: float

    @property
    def new(self) -> float:
        """p_new = p_N + p_S: of a new one (equation 5)."""
        return self.pinned + self.swapped


def matching(split: Split, sizes: Sizes) -> Matching:
    """Return the chances p_old, p_N, p_S and p_new (equations 4 and 5).

    p_N is the harmonic sum to d_N over that to R_t. Equation 4 averages over the n partitions of
    R' = R_t − d_N; as their chances add up to 1, p_old is just 1/n, and p_S is (1 − p_N)/n.

    Examples
    --------
    >>> p = matching(Split(), Sizes(r_t=2e6, v_p=60_000))
    >>> round(p.old, 6), round(p.pinned, 4), round(p.new, 4)
    (0.00025, 0.4503, 0.4504)
    """
    d_n, d_s = split.pinned * sizes.d, split.k * sizes.d
    n = (sizes.r_t - d_n) / d_s
    p_n = hit(d_n, sizes)
    return Matching(1 / n, p_n, (1 - sizes.absent - p_n) / n)


def w(h_s: float, split: Split, sizes: Sizes, *, printed: bool = False) -> float:
    """Return w, the stream tuples of an iteration (equation 6).

    As printed: w new tuples match with p_new and h_S − w old ones with p_old, so that
    w = w·p_new + (h_S − w)·p_old, which is w = h_S·p_old / (1 − p_new + p_old). There the page that
    comes is any page. It is that of the oldest tuple, and finds nearly twice as much: see
    `papers.equations.queue`, which the corrected w follows.

    Examples
    --------
    >>> sizes = Sizes(r_t=2e6, v_p=60_000)
    >>> round(w(461_852, Split(), sizes, printed=True), 1), round(w(461_852, Split(), sizes), 1)
    (210.0, 425.9)
    """
    if printed:
        p = matching(split, sizes)
        return h_s * p.old / (1 - p.new + p.old)
    pages = pages_by_rank(split.pinned * sizes.d, split.k * sizes.d, sizes)
    return oldest_page(h_s, pages, sizes.absent)


def c_loop(w: float, split: Split, sizes: Sizes, costs: Costs) -> float:
    """Return the seconds of an iteration (equation 2); the pages that stay were read before.

    Examples
    --------
    >>> costs = Costs(Read(1e6, 10.0), c_h=100.0)
    >>> round(c_loop(0, Split(2, 3), Sizes(r_t=2e6, v_p=60_000), costs), 6)
    0.00245
    """
    probes = (split.k + split.pinned) * sizes.d * costs.c_h
    outputs = sizes.m * (1 - sizes.absent)
    return 1e-9 * (costs.c_io(split.k * sizes.v_p) + probes + w * costs.queued(outputs))


def service_rate(
    m: float, split: Split, sizes: Sizes, costs: Costs, *, printed: bool = False
) -> float:
    """Return μ, tuples a second (equation 3).

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=2e6, v_p=60_000), Costs(Read(1e6, 10.0))
    >>> [round(service_rate(50e6, Split(1, l), sizes, costs)) for l in (0, 1, 20)]
    [148561, 266185, 406560]
    """
    tuples = w(h_s(m, split, sizes), split, sizes, printed=printed)
    return tuples / c_loop(tuples, split, sizes, costs)


def tuned(m: float, sizes: Sizes, costs: Costs, *, printed: bool = False) -> Split:
    """Return the k and l, not rounded, at which μ is highest (section 5.2): a search over both.

    Examples
    --------
    >>> split = tuned(50e6, Sizes(r_t=2e6, v_p=60_000), Costs(Read(1e6, 10.0)), printed=True)
    >>> round(split.k, 1), round(split.pinned)
    (23.4, 231)
    """
    most = _MOST * min(m, sizes.r_bytes) / sizes.v_p

    def pinned(k: float) -> float:
        return best(
            lambda many: service_rate(m, Split(k, many), sizes, costs, printed=printed),
            1e-3,
            max(2e-3, most - k),
        )

    def rate(k: float) -> float:
        return service_rate(m, Split(k, pinned(k)), sizes, costs, printed=printed)

    k = best(rate, 1.0, max(1.001, most / 2))
    return Split(k, pinned(k))
