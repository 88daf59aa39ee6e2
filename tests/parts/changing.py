"""A master whose rows change by keys, snapshot after snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from semistream.master import Master, build, open_master
from semistream.master.format import Manifest
from semistream.master.source import Rows
from semistream.master.target import Origin, Target

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

ROOM = 64 << 20


@dataclass(frozen=True)
class _Changed(Target):
    origin: Origin = field(default_factory=Origin)

    def publish(self, *parts, **_):
        return super().publish(*parts, origin=self.origin)


def change(path: Path, table: pa.Table, key: str, keys: list[int], page_bytes: int) -> Master:
    """Publish a table as what its parent, the current snapshot, became when ``keys`` changed."""
    rows, parent = Rows.of(table, ROOM), Manifest.load(path).files
    plain = Target.of(path, rows.reader.schema, key, page_bytes)
    codes = np.unique(np.array(keys, dtype=np.int64))
    target = _Changed(**vars(plain), origin=Origin({"kind": "test"}, parent, codes))
    with target.building():
        build._Build(rows, target, ROOM, lambda _: None).run(True)
    return open_master(path)
