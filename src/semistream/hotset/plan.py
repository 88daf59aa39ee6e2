"""What a join needs to know of its host when it is planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.engine.output import gathered_schema
from semistream.hotset.sizes import BESIDE, BORN, HostSizes, least_row
from semistream.hotset.state import HostState
from semistream.hotset.warm import Warm
from semistream.names import unused

if TYPE_CHECKING:
    from semistream.hotset.sizes import HostShare
    from semistream.spec import JoinSpec

__all__ = ["Host"]


@dataclass(frozen=True)
class Host:
    """The state on a host that a join will use; nothing is opened yet."""

    root: Path
    warm: Warm
    sizes: HostSizes

    @classmethod
    def of(cls, spec: JoinSpec, shared: HostShare, size: int) -> Host | None:
        """Give it for so many bytes, None where they are too few."""
        master = spec.master
        schema = pa.schema([master.page_schema.field(0), *gathered_schema(spec)])
        if master.read == "database":
            schema = schema.append(pa.field(unused(BORN, schema.names), pa.int64()))
        sizes = HostSizes.of(size, schema, master.most_rows, master.row_bytes)
        once = master.keys.exact and spec.how in {"semi", "anti"}
        return None if sizes is None else cls(Path(shared.root), Warm(master, schema, once), sizes)

    @property
    def freshness(self) -> int:
        """The most bytes that a join needs to tell which of a database's rows count: one a row."""
        return self.sizes.slot // (least_row(self.warm.schema) + BESIDE)

    def open(self) -> HostState:
        """Open the state, made where there is none."""
        return HostState(self.root, self.warm, self.sizes)
