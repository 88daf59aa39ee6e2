"""What is held warm on a host, and what of it an earlier snapshot of the master may leave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import xxhash

from semistream.arrow.types import row_width
from semistream.hotset.sizes import least_row
from semistream.master.snapshots.snapshots import changes_since

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from semistream.hotset.sizes import HostSizes
    from semistream.master import Master

__all__ = ["Warm"]

_FORMAT = 2
_CODE = 32  # bytes for a changed code, while they are put together


@dataclass(frozen=True)
class Warm:
    """What is held warm: of which master, which columns, and whether one row a key is enough."""

    master: Master
    schema: pa.Schema
    """The code, then the columns that output needs."""
    once: bool

    def name(self, sizes: HostSizes) -> str:
        """Give the name of the folder in which all joins of the same kind meet."""
        schema = self.schema.remove_metadata().serialize().to_pybytes().hex()
        parts = [_FORMAT, _identity(self.master), self.master.keys.seed, schema, self.once]
        parts.append(sizes.components)
        return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())

    @property
    def row_bytes(self) -> float:
        """Bytes of an average row, as far as is known."""
        varies = any(row_width(kind) is None for kind in self.schema.types)
        return self.master.row_bytes if varies else least_row(self.schema)

    @property
    def snapshot(self) -> int:
        """A number for the content of the master."""
        return _number_of(self.master.snapshot)

    def older(self, room: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Give earlier snapshots, the newest first, with the codes of what changed since.

        It ends where it would take more than ``room`` bytes to tell.
        """
        master, most = self.master, room // _CODE
        for snapshot, codes in changes_since(master.path, master.manifest, most):
            yield _number_of(snapshot), codes


def _number_of(snapshot: str) -> int:
    return xxhash.xxh3_64_intdigest(snapshot.encode())


def _identity(master: Master) -> str:
    """Name where a master is; one that is no folder names itself."""
    return str(getattr(master, "identity", None) or master.origin or _resolved(master.path))


@cache
def _resolved(path: Path) -> str:
    return str(path.resolve())
