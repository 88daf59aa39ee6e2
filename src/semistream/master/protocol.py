"""What a join knows of a master table, whether files or a database hold its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from semistream.arrow.types import plain_type
from semistream.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from semistream.arrow.keys import Keys

__all__ = ["CODE", "Master", "Statistics", "page_schema"]

CODE = "__code"
"""The first column of a page."""


def page_schema(schema: pa.Schema, keys: Keys) -> pa.Schema:
    """Return the schema of a page: the code, then the columns in plain types.

    An exact key is its code and is not stored twice.
    """
    if CODE in schema.names:
        msg = f"a master has a column {CODE!r} of its own; rename the one that is there"
        raise SchemaError(msg)
    kept = [f for f in schema if not (keys.exact and f.name in keys.names)]
    columns = [f.with_type(plain_type(f.type)) for f in kept]
    return pa.schema([pa.field(CODE, pa.int64(), nullable=False), *columns])


@dataclass(frozen=True)
class Statistics:
    """What is known of a master's rows; a database counts as one page, which is never read."""

    rows: int
    parts: int
    pages: int
    bytes: int
    """Bytes of all rows, as pages hold them."""
    widest_row: int
    largest_part: int
    """Bytes of the largest part on disk, padding included."""
    values: int
    """Number of distinct join values."""
    most_duplicates: int
    null_keys: int
    """Rows left out because their key is null and so matches nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Master(ABC):
    """A master table, opened for reading; make one with `open_master`.

    It holds no rows. Files hold them in pages (`semistream.master.files.master.FileMaster`); a
    database is queried by lists of keys (`semistream.master.database.master.DatabaseMaster`).
    """

    is_live: ClassVar[bool]
    """Whether rows may change while a join runs: there is no snapshot to read."""
    keys: Keys = field(repr=False)
    schema: pa.Schema = field(repr=False)
    """The columns as their source has them, key included."""
    statistics: Statistics = field(repr=False)

    @property
    @abstractmethod
    def identity(self) -> str:
        """Name of the table, by which joins on a host share its rows; without secrets."""

    @abstractmethod
    def describe(self) -> str:
        """Describe this master in a few lines."""

    @abstractmethod
    def page_of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the page that holds each code if any does; −1 where none can."""

    @property
    def snapshot(self) -> str:
        """An id of the content: it changes when the rows, or their order, change."""
        return ""

    def changes_since(self, most: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:  # noqa: ARG002
        """Yield earlier snapshots, the newest first, with the sorted codes changed since each.

        A row whose code is not among them is the same in both snapshots. It ends where more than
        ``most`` codes would be needed, and where the changes of a snapshot are gone.
        """
        return iter(())

    @property
    def is_mapped(self) -> bool:
        """Whether pages lie in mapped memory, so that rows can be looked up there at once."""
        return False

    @property
    def filter_words(self) -> int:
        """Length of the stored key filter in 64-bit words, 0 where there is none."""
        return 0

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self.keys.names

    @property
    def rows(self) -> int:
        """Number of rows; an estimate where the master is live."""
        return self.statistics.rows

    @property
    def most_rows(self) -> int:
        """Upper bound of the number of rows."""
        return self.rows

    @property
    def pages(self) -> int:
        """Number of pages."""
        return self.statistics.pages

    @property
    def row_bytes(self) -> float:
        """The mean bytes of a row, as pages hold it."""
        return self.statistics.bytes / max(1, self.rows)

    @cached_property
    def page_schema(self) -> pa.Schema:
        """The columns as pages hold them: the code, then plain types."""
        return page_schema(self.schema, self.keys)

    def parts(self, page: int) -> range:
        """Return the parts of a page: one, but for a join value larger than a page."""
        return range(page, page + 1)

    def only(self, names: Sequence[str]) -> Self:  # noqa: ARG002 - pages are read as a whole
        """Return the master as a join reads it that wants the key and these columns."""
        return self
