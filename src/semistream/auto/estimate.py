"""What a stream asks of a master, as a sample of its keys tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.demand import Demand
from semistream.cost.sampling.frequencies import frequencies
from semistream.cost.sampling.multiplicity import zipf_rates
from semistream.cost.sampling.sample import single_out
from semistream.cost.sampling.zipf_fit import fit_zipf

if TYPE_CHECKING:
    from semistream.auto.sample import Counted
    from semistream.master import Master

__all__ = ["Estimate", "estimate"]

_MOST_ABSENT = 0.999  # of rows that a model can do with


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a stream asks, and how to say it."""

    demand: Demand
    skew: str


def estimate(counted: Counted, master: Master, absent: float) -> Estimate | None:
    """Give the demand of a sample of which at least one key may be in the master, else None.

    Unlike `sample_stream` it reads no page: the join itself has counted how many rows have no
    match. Which of the sample's keys these had is not known, so they are taken to be as skewed as
    all. Only keys that were seen have a page of their own: so it takes few bytes.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> from semistream.auto.sample import Counted
    >>> from semistream.workloads import Zipf, master_table
    >>> master = ss.build_master(master_table(5000), tempfile.mkdtemp(), key="key")
    >>> keys = Zipf(5000, exponent=1.0).sample(20_000, np.random.default_rng(1))
    >>> found = estimate(Counted.of(keys), master, absent=0.0)
    >>> found.skew, round(found.demand.hit(50), 1)
    ('Zipf 1.00', 0.5)
    """
    page = master.page_of(counted.codes)
    order = np.argsort(-counted.counts, kind="stable")
    order = order[page[order] >= 0]
    if not len(order):
        return None
    counts, page = counted.counts[order], page[order]
    values = max(master.statistics.values, len(counts))
    fit = fit_zipf(counts, values)
    if fit.holds:
        size, share = zipf_rates(values, fit.exponent, 1)
    else:
        size, share = frequencies(counts, values, fit.exponent)
    size, share = single_out(size, share, len(page))
    demand = Demand(size, share, page, master.pages, min(absent, _MOST_ABSENT))
    law = "Zipf" if fit.holds else "no law, the nearest Zipf"
    return Estimate(demand, f"{law} {fit.exponent:.2f}")
