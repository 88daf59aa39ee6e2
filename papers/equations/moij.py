"""MOIJ: equations 1 to 6 and Theorem 2 of Naeem et al.: Memory Optimized Index Join.

As CACHEJOIN, but the cache has just the join values that take less memory in it than their stream
tuples take in the queue.
"""

from __future__ import annotations

from math import sqrt

from papers.equations import cachejoin
from papers.equations.cachejoin import Served
from papers.equations.harmonic import harmonic, hit
from papers.equations.search import least
from papers.equations.symbols import Costs, Sizes

memory = cachejoin.memory
served = cachejoin.served


def belongs_in_cache(m: float, n: float, sizes: Sizes, *, printed: bool = False) -> bool:
    """Check whether a join value takes less memory in the cache (Theorem 2): m·v_R < n·v_S.

    As printed the tuple in the queue counts v_S. Corrected it counts all bytes that it takes there
    by equation 1: f·v_S + sizeof(ptr), or v_S/α for f = 1.

    Parameters
    ----------
    m
        Tuples of R with that value.
    n
        Stream tuples with that value in the whole queue, in the mean.

    Examples
    --------
    >>> sizes = Sizes(r_t=100e6, v_p=104_858, ptr=4, f=1)
    >>> [belongs_in_cache(1, 5.5, sizes, printed=p) for p in (True, False)]
    [False, True]
    """
    return m * sizes.v_r < n * (sizes.v_s if printed else sizes.held)


def in_queue(rank: float, m: float, h_r: float, sizes: Sizes) -> float:
    """Return n, the stream tuples with the value of this rank in the queue, if they had to wait.

    By Little's law: as many as arrive while h_S tuples that miss the cache do.

    Examples
    --------
    >>> round(in_queue(10, 12e6, 0, Sizes(r_t=1e6, v_p=120_000, ptr=4, f=1)))
    3439
    """
    h_s = sizes.h_s(m - h_r * sizes.v_r - sizes.v_p)
    weight = float(rank**-sizes.exponent / harmonic(sizes.values, sizes.exponent))
    return (1 - sizes.absent) * weight * h_s / max(1e-12, 1 - hit(h_r, sizes))


def tuned_h_r(m: float, sizes: Sizes, *, printed: bool = False) -> float:
    """Return h_R, the tuples in the cache, at which Theorem 2 holds for just those.

    Bisection on the last rank for which it holds, as both h_S and the share of misses depend on it.
    For less memory than R takes; with more, all of R belongs in memory and there is nothing to ask.

    Examples
    --------
    >>> from dataclasses import replace
    >>> sizes = Sizes(r_t=100e6, v_p=104_858, ptr=4, f=1)
    >>> [round(tuned_h_r(1.2e9, replace(sizes, exponent=e))) for e in (0.0, 0.5, 1.0)]
    [0, 263293, 2044881]
    """

    def holds(rank: float) -> bool:
        n = in_queue(rank, m, rank * sizes.m, sizes)
        return belongs_in_cache(sizes.m, n, sizes, printed=printed)

    low, high = 1.0, min(m / sizes.v_r, sizes.r_t) / sizes.m
    if high <= low or not holds(low):
        return 0.0
    while high / low > 1 + 1e-6:
        middle = sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low * sizes.m


def kept_by_line_35(m: float, h_r: float, sizes: Sizes) -> float:
    """Return the tuples that the eviction of Algorithm 1 would leave in a cache of h_R, as printed.

    Line 35 takes a value's tuples in one iteration for n, not those in the whole queue, of which
    Theorem 2 speaks. It would empty the cache.

    Examples
    --------
    >>> round(kept_by_line_35(1.2e9, 2_044_881, Sizes(r_t=100e6, v_p=104_858, ptr=4, f=1)))
    30
    """
    n_1 = served(m, h_r, sizes).w * hit(sizes.m, sizes)  # of the most frequent value
    most = n_1 * sizes.v_s / (sizes.m * sizes.v_r)
    if not sizes.exponent:
        return h_r if most > 1 else 0.0
    return min(h_r, sizes.m * most ** (1 / sizes.exponent)) if most > 1 else 0.0


def c_loop(
    served: Served, h_r: float, sizes: Sizes, costs: Costs, *, printed: bool = False
) -> float:
    """Return the seconds of an iteration (equation 2), a tenth of an eviction included.

    As in CACHEJOIN the printed one leaves out the look-ups that miss the cache.

    Examples
    --------
    >>> costs = Costs(Read(1e6, 10.0), c_i=100.0, c_v=20.0)
    >>> c_loop(cachejoin.Served(0.0, 0.0), 1000, Sizes(r_t=100e6, v_p=60_000), costs)
    0.001652
    """
    rest = cachejoin.c_loop(served, sizes, costs, printed=printed)
    compared = sizes.d * (costs.c_i - costs.c_f)  # the inequality, where CACHEJOIN's threshold was
    return rest + 1e-9 * (compared + h_r * costs.c_v / 10)


def service_rate(
    m: float, sizes: Sizes, costs: Costs, h_r: float | None = None, *, printed: bool = False
) -> float:
    """Return μ, tuples a second (equation 3), with the cache that Theorem 2 makes, or another.

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=100e6, v_p=104_858, ptr=4, f=1), Costs(Read(1e6, 10.0))
    >>> [round(service_rate(1.2e9, sizes, costs, h_r)) for h_r in (None, 1e4, 8e6)]
    [1657075, 878876, 641417]
    """
    cache = tuned_h_r(m, sizes, printed=printed) if h_r is None else h_r
    both = served(m, cache, sizes, averaged=printed)
    return both.w / c_loop(both, cache, sizes, costs, printed=printed)


def arrival_rate(m: float, sizes: Sizes, costs: Costs, *, printed: bool = False) -> float:
    """Return λ, the fastest stream that m bytes bear (equations 4 to 6).

    Equation 6 puts the bytes of all components for w_N + w_S. So printed it is M/c_loop, bytes a
    second. Corrected it is equation 5: tuples, λ = μ.

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=100e6, v_p=104_858, ptr=4, f=1), Costs(Read(1e6, 10.0))
    >>> [f"{arrival_rate(1.2e9, sizes, costs, printed=p):.2e}" for p in (True, False)]
    ['5.86e+11', '1.66e+06']
    """
    if not printed:
        return service_rate(m, sizes, costs)
    h_r = tuned_h_r(m, sizes, printed=True)
    both = served(m, h_r, sizes, averaged=True)
    return sum(memory(m, h_r, sizes).values()) / c_loop(both, h_r, sizes, costs, printed=True)


def least_memory(rate: float, sizes: Sizes, costs: Costs) -> float:
    """Return the least bytes that bear a stream of so many tuples a second: λ ≤ μ (equation 4).

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=100e6, v_p=104_858, ptr=4, f=1), Costs(Read(1e6, 10.0))
    >>> round(least_memory(1_657_075, sizes, costs) / 1e9, 3)
    1.2
    """
    return least(lambda m: service_rate(m, sizes, costs), rate, 2 * sizes.v_p, sizes.r_bytes)
