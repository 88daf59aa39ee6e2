"""Hot sets: rows kept warm on a host, shared by all processes that join there."""

from semistream.hotset.sizes import HostShare, HostSizes, share
from semistream.system.shared_folder import default_root, sweep_folder

__all__ = ["HostShare", "HostSizes", "default_root", "share", "sweep_folder"]
