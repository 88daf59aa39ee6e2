"""Master tables: pages of Arrow sorted by key, with an index, statistics and a key filter."""

from semistream.master.build import Progress, build_master
from semistream.master.opening import open_master
from semistream.master.reader import PageReader
from semistream.master.store import Master

__all__ = ["Master", "PageReader", "Progress", "build_master", "open_master"]
