"""What is known of a master's pages on a host: where each column begins, learnt once for all."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from semistream.system.shared_folder import Handle, boot, open_folder, reserve, sweep_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from semistream.master import FileMaster

__all__ = ["Directory"]

_FORMAT = 2  # raise it when what the bytes mean changes
_MINUTES = 10
_REPLACED = 1  # minute, where the same columns of another snapshot are read by now


class Directory:
    """Bytes that all processes on a host map, zero at first.

    A page is verified, and its buffers are noted, by whoever wants it first. There is no lock: two
    who note one page write the same, and what all pages share is only ever set, never cleared.

    Parameters
    ----------
    root
        The folder of all states.
    master
        The master; another snapshot has another directory.
    wanted
        The columns that are gathered.
    size
        The bytes.
    """

    def __init__(self, root: Path, master: FileMaster, wanted: Sequence[str], size: int) -> None:
        place = master.identity
        kin = f"pages-{_FORMAT}-{_digest(place)}-"
        replaced = f"{kin}{_digest(repr(list(wanted)))}-"
        told = f"{boot()} {master.snapshot} {master.manifest.page_bytes} {size}"
        name = f"{replaced}{_digest(told)}"
        if not (root / name).exists():  # what no one reads any more is outside of every budget
            sweep_folder(root, _REPLACED / 1440, replaced)
            sweep_folder(root, _MINUTES / 1440, kin)
        folder, self._folder = open_folder(root, name)
        file = Handle(folder / "directory")
        reserve(file, folder / "directory", size)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(file.number, size), np.uint8)
        file.close()


def _digest(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())
