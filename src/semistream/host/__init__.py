"""What is warm on a host: shared by all processes that join there, kept when they end."""

from semistream.host.folder import default_root, sweep_folder
from semistream.host.sizes import HostShare, HostSizes, share

__all__ = ["HostShare", "HostSizes", "default_root", "share", "sweep_folder"]
