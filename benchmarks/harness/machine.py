"""The machine that a record was measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import semistream
from semistream.system import machine


def describe() -> dict[str, object]:
    """Return the machine, its load, versions, and a hash of the package's code."""
    code = sorted(Path(semistream.__file__).parent.rglob("*.py"))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine.describe(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release().split("-")[0],
        "load": [round(load, 2) for load in os.getloadavg()],
        "source": sha256(b"".join(file.read_bytes() for file in code)).hexdigest()[:12],
    }
