"""The memory that joins on a host share, as far as it is known when they are planned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from semistream.arrow.types import row_width
from semistream.engine.output import gathered_schema
from semistream.hotset.sizes import BESIDE, BORN, HostSizes, least_row
from semistream.hotset.state import HostState
from semistream.names import unused

if TYPE_CHECKING:
    from semistream.hotset.sizes import HostShare
    from semistream.master import Master
    from semistream.spec import JoinSpec

__all__ = ["Host"]

_FORMAT = 3  # of slots and journal; another one has another folder


@dataclass(frozen=True)
class Host:
    """The hot set that joins of one kind share on a host; nothing is opened yet."""

    root: Path
    """The folder of all hot sets."""
    sizes: HostSizes
    master: Master
    schema: pa.Schema
    """The code, then the columns that output needs; of a database, then the time of birth."""
    once: bool
    """Whether one row a key is enough."""

    @classmethod
    def of(cls, spec: JoinSpec, shared: HostShare, size: int) -> Host | None:
        """Plan for so many bytes; return None where they are too few."""
        master = spec.master
        schema = pa.schema([master.page_schema.field(0), *gathered_schema(spec)])
        if master.is_live:
            schema = schema.append(pa.field(unused(BORN, schema.names), pa.int64()))
        sizes = HostSizes.of(size, schema, master.most_rows, master.row_bytes)
        once = master.keys.exact and spec.how in {"semi", "anti"}
        return None if sizes is None else cls(Path(shared.root), sizes, master, schema, once)

    @property
    def name(self) -> str:
        """Name of the folder in which all joins of the same kind meet."""
        schema = self.schema.remove_metadata().serialize().to_pybytes().hex()
        parts = [_FORMAT, self.master.identity, self.master.keys.seed, schema, self.once]
        return xxhash.xxh3_128_hexdigest(json.dumps([*parts, self.sizes.components]).encode())

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row, as far as is known."""
        varies = any(row_width(kind) is None for kind in self.schema.types)
        return self.master.row_bytes if varies else least_row(self.schema)

    @property
    def freshness(self) -> int:
        """Bytes in which a join marks which of a database's rows are fresh, one for each."""
        return self.sizes.rows_bytes // (least_row(self.schema) + BESIDE)

    @property
    def staged(self) -> int:
        """Bytes for staged rows."""
        return self.sizes.staged

    def open(self) -> HostState:
        """Open the hot set; create it where there is none."""
        return HostState(self)
