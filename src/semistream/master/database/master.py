"""A master table in a database, as joins see it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import MasterError, OptionError, SchemaError
from semistream.master.database.feeds.changes import Changes
from semistream.master.database.fetch import answers
from semistream.master.files.index import Index
from semistream.master.files.master import Master
from semistream.master.files.reader import PageReader
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semistream.master.database.dialect import Table
    from semistream.master.database.feeds.feed import Feed
    from semistream.master.database.fetch import Fetched, Wanted
    from semistream.master.database.store import Store
    from semistream.master.files.filter import KeyFilter

__all__ = ["DatabaseMaster", "one_page"]

_ANY = 1 << 40
_LEAST = -(2**63)  # the least code


@dataclass(frozen=True, eq=False, kw_only=True)
class DatabaseMaster(Master):
    """A table in a database, opened for reading; make one with `open_master`.

    It holds no rows and no connection. The table lives: what a join is told is what the database
    says at that moment, and holds as long as ``ttl`` says.
    """

    store: Store
    table: Table = field(repr=False)
    ttl: float | None = None
    """Seconds for which a row holds that was fetched; None: as long as the join."""
    absent_ttl: float | None = None
    """The same for the answer that there is no row."""
    changes: Changes = field(default_factory=Changes, repr=False)
    feed: Feed | None = None
    """Where changes are told."""
    counted: bool = True
    """Whether the number of rows is known, and not just that there are so many at the least."""
    run: str = field(default="", repr=False)
    """Only joins with the same hold rows together."""

    @property
    def identity(self) -> str:
        """What tells rows of this master from others that a host holds; without password."""
        address, table = self.store.address, self.table
        options = sha256(repr(address.options).encode()).hexdigest()  # they may hold secrets
        told = (address, options, table.parts, table.key, table.where)
        return repr((*map(str, told), self.ttl, self.absent_ttl, self.feed, self.run))

    @property
    def most_rows(self) -> int:
        """How many rows there may be."""
        return self.rows if self.counted else _ANY

    def listen(self) -> None:
        """Follow the change feed in this process, if there is one."""
        if self.feed is not None:
            padded = [column.padded for column in self.table.keys]
            self.changes.listen(self.feed, self.keys, padded)

    def only(self, names: Sequence[str]) -> DatabaseMaster:
        """Give the master with the key and these columns: no others will travel."""
        table = self.table.only(names)
        manifest = replace(self.manifest, schema=table.schema)
        return replace(self, table=table, manifest=manifest, index=one_page())

    def fetch(self, wanted: Wanted, room: int, asked: Callable[[], None]) -> Iterator[Fetched]:
        """Ask for keys; give their rows in pieces of about ``room`` bytes."""
        return answers(self.store, self.table, self.keys, self.page_schema, wanted, room, asked)

    def invalidate(self, keys: pa.Array | pa.RecordBatch | Sequence[object] | None) -> None:
        """Say that the rows of these keys have changed: joins in this process ask anew.

        Parameters
        ----------
        keys
            An array or a list of keys; for a key of several columns a record batch with these.
            None: any may have changed.
        """
        if keys is None:
            self.changes.add(None)
            return
        codes = self.keys.encode(self._key_columns(keys))
        self.changes.add(codes.values[codes.valid])

    def _key_columns(self, keys: pa.Array | pa.RecordBatch | Sequence[object]) -> list[pa.Array]:
        if isinstance(keys, pa.RecordBatch):
            for name in self.key:
                if name not in keys.schema.names:
                    raise SchemaError.missing("batch of keys", name, keys.schema.names)
            return [
                keys.column(name).cast(k) for name, k in zip(self.key, self.keys.types, strict=True)
            ]
        if len(self.key) > 1:
            msg = f"the key has the columns {list(self.key)}; give a record batch with all of them"
            raise OptionError(msg)
        kind = self.keys.types[0]
        return [keys.cast(kind) if isinstance(keys, pa.Array) else pa.array(keys, kind)]

    def reader(self, parts: int = 1, run: int | None = None) -> PageReader:  # noqa: ARG002
        """Return a reader that reads nothing: rows come by `fetch`."""
        return _NoPages()

    def load_filter(self, words: int) -> KeyFilter:  # noqa: ARG002
        """Refuse: what a database has is not known beforehand."""
        msg = f"{self.store}: a table in a database has no filter"
        raise MasterError(msg)

    def describe(self) -> str:
        """Say in a few lines what this master is."""
        s = self.statistics
        about = "about" if self.counted else "at least"
        unique = "at most one row each" if s.most_duplicates == 1 else "any number of rows each"
        lives = [_life(self.ttl), _life(self.absent_ttl)]
        return "\n".join(
            [
                f"master   {self.store}",
                f"key      {', '.join(self.key)} ({unique})",
                f"rows     {about} {s.rows:,} of {self.row_bytes:.0f} B, {format_bytes(s.bytes)}",
                f"fresh    rows for {lives[0]}, absent keys for {lives[1]}",
                f"columns  {', '.join(f'{c.name}: {c.type}' for c in self.schema)}",
            ]
        )


def _life(seconds: float | None) -> str:
    return "as long as the join" if seconds is None else f"{seconds:g} s"


class _NoPages(PageReader):
    """What an engine has in the place of a disk buffer where there are no pages to read."""

    nbytes = 0

    def __init__(self) -> None:
        self.reads = self.bytes_read = 0

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        raise NotImplementedError


def one_page() -> Index:
    """Return an index of one page to which every key belongs; each join has its own."""
    return Index(
        code=np.array([_LEAST]),
        page_code=np.array([_LEAST]),
        offset=np.zeros(1, dtype=np.int64),
        checksum=np.zeros(1, dtype=np.uint64),
        length=np.zeros(1, dtype=np.int32),
        rows=np.zeros(1, dtype=np.int32),
        widest=np.zeros(1, dtype=np.int32),
        first_part=None,
    )
