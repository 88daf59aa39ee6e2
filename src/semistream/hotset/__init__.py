"""What is warm on a host: shared by all processes that join there, kept when they end."""

from semistream.hotset.sizes import HostShare, HostSizes, share
from semistream.system.shared_folder import default_root, sweep_folder

__all__ = ["HostShare", "HostSizes", "default_root", "share", "sweep_folder"]
