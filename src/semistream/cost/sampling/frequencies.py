"""How frequent the keys of a stream are, hot ones and unseen ones, where no law is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.sampling.multiplicity import at_least, count_groups, keys_from, zipf_rates

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["frequencies"]

_OFTEN = 200  # a key seen so often is as frequent as it looks, to 7 %
_RATES, _ROUNDS = 80, 2000
_ANYWHERE = 0.05  # of the keys the law is not believed from the start


def frequencies(counts: Ints, values: int, exponent: float = 0.0) -> tuple[Floats, Floats]:
    """Give groups of keys, hottest first: how many there are, and the share of rows of each key.

    Counts alone mislead: of keys seen once, some are rarer, and keys that were not seen come too.
    Good and Turing tell how much unseen keys have together, but not how evenly. So keys that were
    not seen often are taken for a mixture of Poisson laws, and the mixture is found that makes most
    likely how many keys were seen no times, once, twice, … (Kiefer and Wolfowitz 1956; by the EM
    algorithm over fixed rates). It starts from Zipf's law and moves where the sample speaks against
    it: so what few rows do not tell stays as the law has it.

    Parameters
    ----------
    counts
        How often each key was seen, at least once.
    values
        How many keys there are, seen or not.
    exponent
        Of the Zipf law to start from.

    Examples
    --------
    Of a thousand keys 100 have nine rows in ten.

    >>> keys = np.random.default_rng(1).integers(0, [[100], [900]], (2, 9000))
    >>> counts = np.bincount(np.concatenate([keys[0], 100 + keys[1][:1000]]))
    >>> size, share = frequencies(counts[counts > 0], values=1000)
    >>> round(float((size * share)[np.cumsum(size) < 101].sum()), 2)
    0.9
    """
    ordered = np.sort(counts)[::-1]
    often, rest = ordered[ordered >= _OFTEN], ordered[ordered < _OFTEN]
    size, rates = _mixture(rest, values - len(often), values, exponent)
    size = np.concatenate([np.ones(len(often)), size])
    rates = np.concatenate([often, rates])
    return size, rates / (size @ rates)


def _mixture(counts: Ints, left: int, values: int, exponent: float) -> tuple[Floats, Floats]:
    """Give how many of the keys that are left come how often, most frequent ones first."""
    if not len(counts):
        return np.full(min(1, left), float(left)), np.zeros(min(1, left))
    least, rows = count_groups(int(counts.max())), int(counts.sum())
    lowest = min(0.1, rows / left) / 10
    rates = np.append(0.0, np.geomspace(lowest, max(1.0, float(counts.max())), _RATES))
    chances = np.vstack([np.ones_like(rates), at_least(least, rates)])
    chances = np.maximum(-np.diff(chances, axis=0, append=0.0), 1e-300)
    seen = -np.diff(np.append(left, keys_from(counts, least)), append=0.0)
    part = _start(rates, *zipf_rates(values, exponent, rows))
    for _ in range(_ROUNDS):
        part *= (seen / (chances @ part)) @ chances / left
    size = left * part[::-1]
    return size, rates[::-1] * rows / (size @ rates[::-1])


def _start(rates: Floats, size: Floats, law: Floats) -> Floats:
    """Give the parts that have each rate under a law, and a few of every rate."""
    nearest = np.searchsorted((rates[1:] + rates[:-1]) / 2, law)
    part = np.bincount(nearest, size, minlength=len(rates)) / size.sum()
    return np.asarray((1 - _ANYWHERE) * part + _ANYWHERE / len(rates))
