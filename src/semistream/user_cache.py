"""Where the user's profile, fetched jars and a home for Java are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["user_cache"]


def user_cache() -> Path:
    """Give the folder: ``semistream`` in an absolute ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "semistream"
