"""What a stream asks of a master, as a sample of its keys tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistream.cost.demand import Demand

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.auto.sample import Counted
    from semistream.master import Master

__all__ = ["estimate"]

_MOST_ABSENT = 0.999  # of rows that a model can do with


def estimate(counted: Counted, master: Master, absent: float) -> Demand:
    """Give the demand: keys seen again as often as they came, all others alike.

    Good and Turing: of further rows, as many have a key that was seen j times as there were rows of
    keys seen j + 1 times. So keys seen twice or more have the rows of those seen three times or
    more, and what is left is that of keys seen once, or not yet.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> from semistream.auto.sample import Counted
    >>> from semistream.workloads import master_table
    >>> master = ss.build_master(master_table(1000), tempfile.mkdtemp(), key="key")
    >>> codes, counts = np.arange(60), np.append([35, 6], np.ones(58, dtype=np.int64))
    >>> round(estimate(Counted(100, codes, counts), master, absent=0.0).hit(1), 2)
    0.35
    """
    counts, rows = counted.counts, max(1, counted.rows)
    again = counts > 1
    shares = (counts[again] - 1) / max(1, int((counts[again] - 1).sum()))
    shares = shares * int(counts[counts > 2].sum()) / rows
    page = master.page_of(counted.codes[again])
    values = max(master.statistics.values, int(np.count_nonzero(again)), 1)
    hot = (page >= 0) & (shares >= (1 - shares.sum()) / max(1, values - len(shares)))
    shares, page = shares[hot], page[hot]
    order = np.argsort(-shares, kind="stable")
    left = float(values - len(shares))
    size, share = np.ones(len(shares)), shares[order]
    if left:
        size, share = np.append(size, left), np.append(share, (1 - share.sum()) / left)
    share = _adding_up(size, share)
    return Demand(size, share, page[order], master.pages, min(absent, _MOST_ABSENT))


def _adding_up(
    size: npt.NDArray[np.float64], share: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    total = float((size * share).sum())
    return share / total if total > 0 else np.full(len(size), 1 / size.sum())
