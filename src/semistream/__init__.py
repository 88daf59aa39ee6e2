"""Join a stream with a master table on disk, within a memory budget given in bytes.

A semi-stream join holds a bounded window of unmatched stream rows, and at each step brings a page
of the master table to it.
"""

from semistream.algorithms import algorithms
from semistream.cost.planning.planner import plan
from semistream.enrich import enrich, split, watch
from semistream.errors import SemistreamError
from semistream.join import Join
from semistream.master import Master, build_master, open_master, sync_master

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
