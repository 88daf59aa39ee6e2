"""PCSRJ: equations 1 to 3 of Naeem et al.: Parallelisation of CACHEJOIN, for N nodes.

Each node has one Nth of the memory, of R and of its keys' part of the stream. The paper doubles
both w and c_loop, so that as printed the second node brings nothing. But nodes work at the same
time: an iteration of all of them takes as long as that of the busiest.

Which is that? A hash spreads rare keys evenly and frequent ones not: one node has the most frequent
key. So the tuples that miss the cache are the same for each node, those that hit it are not. As the
hits cost no reads, N nodes bring nearly N while reads are what costs, and 1/(share of the busiest
node) when nothing else costs but tuples.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from papers.equations import cachejoin
from papers.equations.harmonic import harmonic, hit
from papers.equations.symbols import Costs, Sizes

_KEYS, _TRIALS = 4096, 400


def memory(m: float, h_r: float, sizes: Sizes, nodes: int = 2) -> dict[str, float]:
    """Return the bytes of each component on all nodes (equation 1); h_R tuples on each.

    Examples
    --------
    >>> memory(1_000_000, 1000, Sizes(r_t=2e6, v_p=60_000))["cache"]
    240000.0
    """
    one = cachejoin.memory(m / nodes, h_r, sizes)
    return {name: nodes * size for name, size in one.items()}


def served(m: float, h_r: float, sizes: Sizes, nodes: int = 2) -> cachejoin.Served:
    """Return w_N and w_S of a node that has its Nth of the stream.

    Examples
    --------
    >>> sizes = Sizes(r_t=2e6, v_p=60_000)
    >>> both, one = served(50e6, 5_000, sizes), cachejoin.served(50e6, 10_000, sizes)
    >>> round(both.w), round(one.w)
    (642, 643)
    """
    part = replace(sizes, r_t=sizes.r_t / nodes)
    p_n = hit(nodes * h_r, sizes)  # of all keys, of which each node has its Nth
    w_s = cachejoin.served(m / nodes, h_r, part).w_s
    return cachejoin.Served(w_s * p_n / (1 - p_n), w_s)


def c_loop(
    served: cachejoin.Served, sizes: Sizes, costs: Costs, nodes: int = 2, *, printed: bool = False
) -> float:
    """Return the seconds of an iteration (equation 2): as printed N times that of a node.

    Examples
    --------
    >>> sizes, both = Sizes(r_t=2e6, v_p=60_000), cachejoin.Served(400.0, 200.0)
    >>> [round(c_loop(both, sizes, Costs(Read(1e6, 10.0)), printed=p), 5) for p in (True, False)]
    [0.0032, 0.0016]
    """
    one = cachejoin.c_loop(served, sizes, costs, printed=printed)
    return nodes * one if printed else one


def odd_share(sizes: Sizes) -> float:
    """Return the share of the stream with odd keys, if keys are ranks: the paper's hash for N = 2.

    Examples
    --------
    >>> round(odd_share(Sizes(r_t=2e6, v_p=60_000)), 4)
    0.523
    """
    half, whole = harmonic([sizes.values / 2, sizes.values], sizes.exponent)
    return float(1 - 2.0**-sizes.exponent * half / whole)


def busiest(nodes: int, sizes: Sizes) -> float:
    """Return the expected share of the stream on the busiest of N nodes, by a hash of the key.

    The node with the most frequent key has p_1 + (1 − p_1)/N in the mean; others may have more.
    Hence hundreds of hashes of the most frequent keys, always the same; the others lie evenly.

    Examples
    --------
    >>> sizes = Sizes(r_t=2e6, v_p=60_000)
    >>> [round(busiest(n, sizes), 3) for n in (1, 2, 8)]
    [1.0, 0.536, 0.184]
    """
    return _busiest(nodes, sizes.values, sizes.exponent)


@lru_cache(maxsize=256)
def _busiest(nodes: int, values: float, exponent: float) -> float:
    keys = int(min(_KEYS, values))
    p = np.arange(1.0, keys + 1) ** -exponent / float(harmonic(values, exponent))
    rng = np.random.default_rng(0)
    tops = [
        np.bincount(rng.integers(0, nodes, keys), p, minlength=nodes).max() for _ in range(_TRIALS)
    ]
    return float(np.mean(tops)) + max(0.0, 1 - float(p.sum())) / nodes


def service_rate(
    m: float, h_r: float, sizes: Sizes, costs: Costs, nodes: int = 2, *, printed: bool = False
) -> float:
    """Return μ of all nodes, tuples a second (equation 3); h_R tuples on each.

    As printed it is N·w over N times a node's c_loop. Corrected, c_loop is that of the busiest
    node: its misses are as many as each node's, its hits are what its share of the stream leaves.

    Examples
    --------
    >>> sizes, costs = Sizes(r_t=2e6, v_p=60_000), Costs(Read(1e6, 10.0), c_s=500.0)
    >>> [round(service_rate(50e6, 5_000, sizes, costs, printed=p)) for p in (True, False)]
    [334077, 660309]
    """
    both = served(m, h_r, sizes, nodes)
    if printed:
        return nodes * both.w / c_loop(both, sizes, costs, nodes, printed=True)
    hits = both.w_n + both.w * (nodes * busiest(nodes, sizes) - 1)
    return nodes * both.w / c_loop(replace(both, w_n=hits), sizes, costs, nodes)


def gain(m: float, h_r: float, sizes: Sizes, costs: Costs, nodes: int = 2) -> float:
    """Return how many times as fast N nodes are as one with the same m and N·h_R.

    Examples
    --------
    >>> sizes, tuples = Sizes(r_t=2e6, v_p=60_000), Costs(Read(0.0, 0.0), c_s=500.0)
    >>> round(gain(50e6, 5_000, sizes, Costs(Read(1e6, 10.0))), 2)
    2.0
    >>> round(gain(50e6, 5_000, sizes, tuples), 2)
    1.87
    """
    one = cachejoin.service_rate(m, nodes * h_r, sizes, costs)
    return service_rate(m, h_r, sizes, costs, nodes) / one
