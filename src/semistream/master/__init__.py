"""Master tables: pages of Arrow sorted by key, with an index, statistics and a key filter."""

from typing import TYPE_CHECKING

from semistream.master.opening import open_master
from semistream.master.reader import PageReader
from semistream.master.snapshots import Snapshot, list_snapshots
from semistream.master.store import Master

if TYPE_CHECKING:
    from semistream.master.build import Progress, build_master
    from semistream.master.removal import clean_master
    from semistream.master.sync.snapshot import Synced, sync_master
else:  # to read a master, nothing that writes one is needed
    from semistream.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Progress": "semistream.master.build",
            "Synced": "semistream.master.sync.snapshot",
            "build_master": "semistream.master.build",
            "clean_master": "semistream.master.removal",
            "sync_master": "semistream.master.sync.snapshot",
        },
    )

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
