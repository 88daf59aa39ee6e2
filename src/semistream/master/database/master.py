"""A master table in a database, as joins see it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from semistream.arrow.keys import Codes, Keys
from semistream.errors import OptionError, SchemaError
from semistream.master.database.feeds.changes import Changes
from semistream.master.database.fetch import answers
from semistream.master.protocol import Master
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from semistream.master.database.dialect import Table
    from semistream.master.database.feeds.feed import Feed
    from semistream.master.database.fetch import Fetched, Wanted
    from semistream.master.database.store import Store

__all__ = ["DatabaseMaster", "OrderedKeys"]

_UNBOUNDED = 1 << 40  # rows: more than any host's memory has room for


@dataclass(frozen=True)
class OrderedKeys(Keys):
    """Keys whose code is the key: in a database dates and times, too.

    Files have dates and times in the order of a hash, which their format promises. Codes of a
    database are in no file: where the code is the key, no second hash is needed to tell keys apart.

    Examples
    --------
    >>> from datetime import date
    >>> keys = OrderedKeys.of(pa.schema([("day", pa.date32())]), ["day"])
    >>> codes = keys.encode([pa.array([date(1970, 1, 3), None])])
    >>> keys.exact, codes.values.tolist(), keys.decode(pa.array(codes.values[:1])).to_pylist()
    (True, [2, 0], [datetime.date(1970, 1, 3)])
    """

    @property
    def exact(self) -> bool:
        """Whether equal codes mean equal keys."""
        return super().exact or self._is_time

    @property
    def _is_time(self) -> bool:
        kind = self.types[0]
        single = len(self.types) == 1
        return single and bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))

    def encode(self, columns: Sequence[pa.Array]) -> Codes:
        """Return the code of each row."""
        if not self._is_time:
            return super().encode(columns)
        column = self.canonical(columns)[0]
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
        numbers = numbers.cast(pa.int64()).fill_null(0)
        return Codes(numbers.to_numpy(), valid, bool(valid.all()))

    def decode(self, codes: pa.Array) -> pa.Array:
        """Return the keys that codes stand for, in the type they are compared in."""
        if not self._is_time:
            return super().decode(codes)
        kind = self.types[0]
        return codes.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else codes.cast(kind)


@dataclass(frozen=True, eq=False, kw_only=True)
class DatabaseMaster(Master):
    """A table in a database, queried by lists of keys; it holds no connection.

    The table lives: an answer is what the database says at that moment, and is valid for ``ttl``.
    """

    is_live: ClassVar[bool] = True
    store: Store
    table: Table = field(repr=False)
    ttl: float | None = None
    """TTL in seconds of rows that were fetched; None: no expiry."""
    absent_ttl: float | None = None
    """The same for the answer that there is no row."""
    changes: Changes = field(default_factory=Changes, repr=False)
    feed: Feed | None = None
    """The change feed, if there is one."""
    counted: bool = True
    """Whether the number of rows is an estimate, rather than a lower bound."""
    run: str = field(default="", repr=False)
    """Only joins with the same value share rows on a host."""

    @property
    def identity(self) -> str:
        """Name of the table and of how its rows are kept; without password."""
        address, table = self.store.address, self.table
        options = sha256(repr(address.options).encode()).hexdigest()  # they may hold secrets
        place = (address, options, table.parts, table.key, table.where)
        return repr((*map(str, place), self.ttl, self.absent_ttl, self.feed, self.run))

    @property
    def most_rows(self) -> int:
        """Upper bound of the number of rows."""
        return self.rows if self.counted else _UNBOUNDED

    def page_of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return 0 for each code: what a database has is known when it is asked."""
        return np.zeros(len(codes), dtype=np.int32)

    def listen(self) -> None:
        """Follow the change feed in this process, if there is one."""
        if self.feed is not None:
            padded = [column.padded for column in self.table.keys]
            self.changes.listen(self.feed, self.keys, padded)

    def only(self, names: Sequence[str]) -> DatabaseMaster:
        """Return the master with the key and these columns: no others will travel."""
        table = self.table.only(names)
        return replace(self, table=table, schema=table.schema)

    def fetch(self, wanted: Wanted, room: int, asked: Callable[[], None]) -> Iterator[Fetched]:
        """Query for keys; yield their rows in pieces of about ``room`` bytes."""
        return answers(self.store, self.table, self.keys, self.page_schema, wanted, room, asked)

    def invalidate(self, keys: pa.Array | pa.RecordBatch | Sequence[object] | None) -> None:
        """Declare that the rows of these keys have changed: joins in this process fetch them anew.

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

    def describe(self) -> str:
        """Describe this master in a few lines."""
        s = self.statistics
        about = "about" if self.counted else "at least"
        unique = "at most one row each" if s.most_duplicates == 1 else "any number of rows each"
        rows_for, absent_for = (
            "as long as the join" if ttl is None else f"{ttl:g} s"
            for ttl in (self.ttl, self.absent_ttl)
        )
        return "\n".join(
            [
                f"master   {self.store}",
                f"key      {', '.join(self.key)} ({unique})",
                f"rows     {about} {s.rows:,} of {self.row_bytes:.0f} B, {format_bytes(s.bytes)}",
                f"fresh    rows for {rows_for}, absent keys for {absent_for}",
                f"columns  {', '.join(f'{c.name}: {c.type}' for c in self.schema)}",
            ]
        )
