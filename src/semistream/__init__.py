"""Join a stream with a master table on disk, within a memory budget given in bytes.

A semi-stream join holds a bounded window of unmatched stream rows, and at each step brings a page
of the master table to it.
"""

from typing import TYPE_CHECKING

from semistream.algorithms import algorithms
from semistream.api import build_master, enrich, split, watch
from semistream.errors import SemistreamError
from semistream.join import Join
from semistream.master import Master, open_master

if TYPE_CHECKING:
    from semistream.master import sync_master
    from semistream.planning.planner import plan
else:  # a join needs neither a builder nor the planner
    from semistream.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "plan": "semistream.planning.planner",
            "sync_master": "semistream.master.sync.sync",
        },
    )

__all__ = [
    "Join",
    "Master",
    "SemistreamError",
    "algorithms",
    "build_master",
    "enrich",
    "open_master",
    "plan",
    "split",
    "sync_master",
    "watch",
]

__version__ = "0.1.0"
