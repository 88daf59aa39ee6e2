"""Master tables: pages of Arrow sorted by key, with an index, statistics and a key filter."""

from semistream.master.build import Progress, build_master
from semistream.master.opening import open_master
from semistream.master.reader import PageReader
from semistream.master.removal import clean_master
from semistream.master.snapshots import Snapshot, list_snapshots
from semistream.master.store import Master
from semistream.master.sync.snapshot import Synced, sync_master

__all__ = [
    "Master",
    "PageReader",
    "Progress",
    "Snapshot",
    "Synced",
    "build_master",
    "clean_master",
    "list_snapshots",
    "open_master",
    "sync_master",
]
