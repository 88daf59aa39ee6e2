"""MESHJOIN: equations 1 to 5 of Naeem, Dobbie and Weber on its tuned and default disk buffer.

Comparing Global Optimization and Default Settings of Stream-based Joins. All as printed.
The paper leaves σ open; that every stream tuple meets all of R once gives it.
"""

from __future__ import annotations

from papers.equations.search import best
from papers.equations.symbols import Costs, Sizes


def memory(b: float, w: float, sizes: Sizes) -> dict[str, float]:
    """Return the bytes of each component (equation 1); M is their sum.

    Parameters
    ----------
    b
        Pages of R in the disk buffer.
    w
        Stream tuples that enter in an iteration.

    Examples
    --------
    >>> memory(100, 50, Sizes(r_t=3.5e6, v_p=10_500, ptr=4))
    {'disk buffer': 1050000, 'stream buffer': 1000.0, 'queue': 80000.0, 'hash table': 1920000.0}
    """
    tuples = w * sizes.n_r / b
    return {
        "disk buffer": b * sizes.v_p,
        "stream buffer": w * sizes.v_s,
        "queue": tuples * sizes.ptr,
        "hash table": tuples * sizes.f * sizes.v_s,
    }


def w(m: float, b: float, sizes: Sizes) -> float:
    """Return w, the stream tuples that enter in an iteration (equation 3).

    Examples
    --------
    >>> round(w(3_051_000, 100, Sizes(r_t=3.5e6, v_p=10_500, ptr=4)), 6)
    50.0
    """
    return (m - b * sizes.v_p) / (sizes.v_s + sizes.n_r / b * sizes.held)


def sigma(b: float, w: float, sizes: Sizes) -> float:
    """Return σ, the output of one tuple of R in an iteration.

    The paper does not say how to come by it. Every stream tuple with a match has its m outputs
    while the scan goes round once, so that b pages output m·w·(1 − absent) in the mean.

    Examples
    --------
    >>> sigma(100, 875, Sizes(r_t=3.5e6, v_p=12_000, absent=0.2))
    0.07
    """
    return sizes.m * w * (1 - sizes.absent) / (b * sizes.d)


def c_loop(b: float, w: float, sizes: Sizes, costs: Costs) -> float:
    """Return the seconds of an iteration (equation 2).

    Examples
    --------
    >>> c_loop(100, 50, Sizes(r_t=3.5e6, v_p=12_000), Costs(Read(8e6, 1.0), c_h=100.0))
    0.0102
    """
    each = costs.c_e + costs.c_s + costs.c_a
    probes = b * sizes.d * (costs.c_h + sigma(b, w, sizes) * costs.c_o)
    return 1e-9 * (costs.c_io(b * sizes.v_p) + w * each + probes)


def service_rate(m: float, b: float, sizes: Sizes, costs: Costs) -> float:
    """Return μ, tuples a second, for b pages within m bytes (equations 4 and 5).

    Examples
    --------
    >>> round(service_rate(20e6, 100, Sizes(r_t=3.5e6, v_p=10_500), Costs(Read(5e5, 10.0))))
    39859
    """
    tuples = w(m, b, sizes)
    return tuples / c_loop(b, tuples, sizes, costs)


def tuned_b(m: float, sizes: Sizes, costs: Costs) -> float:
    """Return the b, not rounded, at which equation 5 is highest; numerically, as the paper does.

    Examples
    --------
    >>> sizes = Sizes(r_t=3.5e6, v_p=2**20, ptr=4)
    >>> round(tuned_b(80 * 2**20, sizes, Costs(Read(0.048 * 2**20, 1.0))), 2)
    1.88
    """
    most = min(m, sizes.r_bytes) / sizes.v_p
    return best(lambda b: service_rate(m, b, sizes, costs), most * 1e-6, most * 0.999)


def loss(m: float, b: float, sizes: Sizes, costs: Costs) -> float:
    """Return the share of the highest service rate that b pages forgo.

    Examples
    --------
    >>> sizes = Sizes(r_t=3.5e6, v_p=2**20, ptr=4)
    >>> round(loss(80 * 2**20, 0.93, sizes, Costs(Read(0.048 * 2**20, 1.0))), 4)
    0.0125
    """
    tuned = service_rate(m, tuned_b(m, sizes, costs), sizes, costs)
    return 1 - service_rate(m, b, sizes, costs) / tuned
