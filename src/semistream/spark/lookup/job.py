"""What a task must know to do its part of an enrichment; it travels to the workers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.algorithms import choose
from semistream.hotset import HostShare, default_root
from semistream.join import Join
from semistream.master.place import without_secrets
from semistream.missing import OnMissing
from semistream.names import unused
from semistream.options import EnrichOptions
from semistream.spark.types import type_name
from semistream.spec import JoinSpec
from semistream.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.algorithms import Algorithm
    from semistream.engine.plan import Plan, Task
    from semistream.master import Master
    from semistream.master.database.master import DatabaseMaster
    from semistream.metrics import Metrics
    from semistream.spec import On

__all__ = ["Copies", "Job", "shape_of"]

_ANSWERS = 4  # one part in so many of the memory is for answers that are not in order yet
_COPIES = "100GB"  # far more than most masters, and less than most disks


@dataclass(frozen=True)
class Copies:
    """Copies of masters on a host's own disk."""

    folder: str | None
    """Where they are; None is the host's folder for temporary files."""
    limit: int
    """Bytes that all of them may have."""

    @classmethod
    def of(cls, localize: bool | int | str) -> Copies | None:
        """Return what the option ``localize`` asks for; None if no copies are kept."""
        if localize is False:
            return None
        return cls(None, parse_bytes(_COPIES if localize is True else localize, "localize"))


@dataclass(frozen=True, kw_only=True)
class Job(EnrichOptions):
    """One enrichment, as its tasks see it: its options, resolved, and what follows from them."""

    name: str
    """Names the enrichment in metrics, where no two have the same."""
    called: str = ""
    """The enrichment's name as it was given."""
    path: str
    """The master's folder, as executors see it."""
    stream: pa.Schema
    """The columns that pass through Python."""
    read: str = "mapped"
    """How tasks read pages: what ``"auto"`` has become."""
    tasks: int
    """How many tasks an executor runs at once."""
    on: dict[str, str] = field(default_factory=dict)
    """Stream column → master column."""
    select: tuple[str, ...] = ()
    shape: str = ""
    """A fingerprint of the master's columns and key."""
    database: DatabaseMaster | None = None
    """The master, where it is a table in a database."""
    copies: Copies | None = None
    """Where hosts keep copies of the master, if they do."""
    missing: OnMissing = field(default_factory=OnMissing)
    """What `on_missing` asks for, in the types of the master's columns."""
    earlier: tuple[str, ...] = ()
    """Status columns of enrichments before this one by which rows are split: what these have
    found to be missing is theirs."""
    files: str = ""
    """The snapshot that all tasks read; if none is named, that of their micro-batch."""
    holder: str = ""
    """Who keeps it from being removed."""
    single: bool = False
    """Whether a key with several rows is an error, also where whole rows pass."""
    scalar: bool = False
    """Whether answers go back in the order of their keys: a quarter of the budget is for those."""

    def resolved(self, master: Master, on: On, select: Sequence[str] | None) -> Job:
        """Return the job with what follows from the master, if all goes together."""
        spec = JoinSpec.resolve(
            master, self.stream, on, self.how, select, self.prefix, type_name=type_name
        )
        return replace(
            self,
            how=spec.how,
            on=dict(zip(spec.stream_keys, master.key, strict=True)),
            select=spec.payload,
            missing=self.missing.checked(master.schema, spec.payload, type_name),
            shape=shape_of(master, spec.payload),
        )

    def choose_join(self, master: Master) -> tuple[type[Algorithm], Task, Plan]:
        """Return the plan of a task's join; refuse a budget that is too small for it."""
        columns = self.select if self.how in {"inner", "left"} else None
        spec = JoinSpec.resolve(
            master, self.stream, self.on, self._join_how, columns, self.prefix, self.mark
        )
        shared = self.shared
        return choose(
            self.algorithm, spec, self.memory, None, self.options, shared, self._for_joins
        )

    def _for_joins(self, memory: int) -> int:
        """Return the part of a budget that is not for answers."""
        return memory - memory // _ANSWERS if self.scalar else memory

    @property
    def is_versioned(self) -> bool:
        """Whether the master has snapshots: a database, which is not copied either, has none."""
        return "://" not in self.path or self.copies is not None

    @property
    def shown(self) -> str:
        """The master's folder as messages have it."""
        return without_secrets(self.path)

    def keys_only(self) -> Job:
        """Return the job of a scalar function: rows are numbered, absent ones are left out."""
        keys = [self.stream.field(name) for name in self.on]
        number = unused("__row", [*self.on, *self._master_columns])
        stream = pa.schema([pa.field(number, pa.int32(), nullable=False), *keys])
        return replace(self, stream=stream, scalar=True)

    @property
    def _join_how(self) -> str:
        """The join type of a task: of keys alone, only those with a match are answered."""
        if not self.scalar:
            return self.how
        return "inner" if self.how in {"inner", "left"} else "semi"

    @property
    def mark(self) -> str:
        """The column in which a join of whole rows marks those with a match."""
        is_needed = self.status or self.missing.kind != "null"
        taken = [*self.stream.names, *self._master_columns]
        return unused("__found", taken) if is_needed and not self.scalar else ""

    @property
    def _master_columns(self) -> list[str]:
        return [self.prefix + name for name in self.select]

    @property
    def refuses(self) -> bool:
        """Whether a row without a master row is an error."""
        return self.missing.kind == "error"

    @property
    def room_for_answers(self) -> int:
        """Bytes of a task for answers that are not in order yet, and a copy of them."""
        return self.memory // _ANSWERS // self.tasks if self.scalar else 0

    @property
    def shared(self) -> HostShare:
        """How tasks share a host."""
        return HostShare(default_root(self.memory), self.tasks)

    def join(self, master: Master) -> Join:
        """Make a task's join."""
        return Join(
            master,
            self.stream,
            on=self.on,
            how=self._join_how,
            memory=self._for_joins(self.memory),
            algorithm=self.algorithm,
            select=self.select if self.how in {"inner", "left"} else None,
            prefix=self.prefix,
            mark=self.mark,
            shared=self.shared,
            **self.options,
        )

    def counters(self, metrics: Metrics) -> dict[str, int]:
        """Return a task's counters; those of keys alone as if whole rows had been joined."""
        rows_out = metrics.rows_out
        if self.scalar and self.how in {"left", "anti"}:
            rows_out = metrics.rows_in - (rows_out if self.how == "anti" else 0)
        return metrics.as_dict() | {"rows_out": rows_out}


def shape_of(master: Master, select: Sequence[str]) -> str:
    """Return a fingerprint of a master's key and the columns that are taken of it."""
    types = dict(zip(master.schema.names, master.schema.types, strict=True))
    columns = [f"{name} {types.get(name)}" for name in (*master.key, *select)]
    return hashlib.blake2b("\0".join(columns).encode(), digest_size=8).hexdigest()
