"""Master tables: pages of Arrow sorted by key, with an index, statistics and a key filter."""

from typing import TYPE_CHECKING

from semistream.master.files.master import FileMaster
from semistream.master.files.reader import PageReader
from semistream.master.open import open_master
from semistream.master.protocol import Master
from semistream.master.snapshots.snapshots import Snapshot, list_snapshots

if TYPE_CHECKING:
    from semistream.master.build.build import Progress
    from semistream.master.snapshots.removal import clean_master
    from semistream.master.sync.sync import Synced, sync_master
else:  # to read a master, nothing that writes one is needed
    from semistream.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Progress": "semistream.master.build.build",
            "Synced": "semistream.master.sync.sync",
            "clean_master": "semistream.master.snapshots.removal",
            "sync_master": "semistream.master.sync.sync",
        },
    )

__all__ = [
    "FileMaster",
    "Master",
    "PageReader",
    "Progress",
    "Snapshot",
    "Synced",
    "clean_master",
    "list_snapshots",
    "open_master",
    "sync_master",
]
