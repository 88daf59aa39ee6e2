"""Cases of the suite: a stream and a master to join, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.api import build_master
from semistream.master import open_master
from semistream.master.files.format import MANIFEST
from semistream.testing.reference import reference_join

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from semistream.master import FileMaster
    from semistream.spec import On

__all__ = ["Case", "case", "cases"]


@dataclass(frozen=True, eq=False)
class Case:
    """One stream and one master; `semistream.testing.cases` has those of the suite."""

    name: str
    master: pa.Table = field(repr=False)
    stream: tuple[pa.RecordBatch, ...] = field(repr=False)
    """The batches in order, at least one."""
    on: On = "key"
    """As for `Join`; names the whole key of the master."""
    key: tuple[str, ...] = ("key",)
    memory: int = 64 * 1024
    page_bytes: int = 4096
    read: str = "mapped"
    prefix: str = ""
    resident: bool | None = False
    """Whether the budget holds the whole master; None where it does not matter."""

    @property
    def stream_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.stream[0].schema

    @property
    def stream_rows(self) -> int:
        """Rows of all batches together."""
        return sum(batch.num_rows for batch in self.stream)

    def open(self, folder: Path) -> FileMaster:
        """Open the case's master in ``folder``; the first call builds it there."""
        path = folder / self.name
        if not (path / MANIFEST).exists():
            build_master(self.master, path, self.key, page_bytes=self.page_bytes)
        return open_master(path, self.read)

    def expected(self, how: str) -> pa.Table:
        """Return the result of the join by the reference; it is computed once.

        Cases that differ in how a join is run, and not in its rows, share it.
        """
        rows = (id(self.stream), id(self.master), repr(self.on), self.prefix, how)
        if rows not in _EXPECTED:
            stream = pa.Table.from_batches(self.stream)
            found = reference_join(stream, self.master, on=self.on, how=how, prefix=self.prefix)
            _EXPECTED[rows] = (self, found)
        return _EXPECTED[rows][1]


_EXPECTED: dict[tuple[object, ...], tuple[Case, pa.Table]] = {}
"""Results, each with its case: while that exists, no other rows have their ``id``."""


_CASES: dict[str, Callable[[], Case]] = {}


def register(make: Callable[[], Case], name: str | None = None) -> Callable[[], Case]:
    """Register a function that makes a case; it is called when the case is first used."""
    _CASES[name or make.__name__] = make
    return make


def cases() -> list[str]:
    """Return the names of all cases.

    Examples
    --------
    >>> import semistream.testing
    >>> "one_key" in semistream.testing.cases()
    True
    """
    return list(_CASES)


@cache
def case(name: str) -> Case:
    """Return a case by name; the same object each time."""
    return _CASES[name]()
