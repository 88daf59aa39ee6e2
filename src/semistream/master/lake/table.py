"""The protocol of tables of files: rows at a version, and changes since another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from semistream.arrow.types import cast
from semistream.errors import MasterError, OptionError, SchemaError, SemistreamError
from semistream.master.place import without_secrets
from semistream.master.source import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Feed", "LakeTable", "Scope", "UnreadError", "conform", "project"]


class UnreadError(MasterError):
    """Files that are needed were cleaned up, or the library does not read them."""


class Scope(Enum):
    """Which old rows a block of changes replaces, beside those that it names."""

    ROWS = "none"
    KEYS = "all rows of its keys"
    ALL = "all rows"


@dataclass(frozen=True)
class Feed:
    """Changes of a table since a version."""

    how: str
    scope: Scope
    batches: Callable[[], Iterator[tuple[int, pa.RecordBatch]]]
    """Yields rows of the table's schema: with weight 1 those that came, −1 those that went."""

    def guarded(self, errors: tuple[type[Exception], ...]) -> Feed:
        """Return a feed that raises `UnreadError` for failures to read, ``errors`` among them."""

        def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
            try:
                yield from self.batches()
            except SemistreamError:
                raise
            except (OSError, pa.ArrowException, *errors) as error:
                raise UnreadError(without_secrets(str(error))) from error

        return replace(self, batches=batches)


class LakeTable(ABC):
    """A table at one version."""

    kind: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors of its library."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns that are read."""

    @property
    @abstractmethod
    def note(self) -> dict[str, Any]:
        """Its entry in a manifest: ``kind``, ``uri``, ``version``, …; JSON."""

    @abstractmethod
    def batches(self, memory: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in the schema."""

    def count(self) -> int | None:
        """Return how many rows there are, where that is known without reading them."""
        return None

    @abstractmethod
    def is_newer(self, since: Mapping[str, Any]) -> bool:
        """Return whether this version is another than the noted one; an older one is an error."""

    @abstractmethod
    def feeds(self, since: Mapping[str, Any], memory: int) -> Iterator[Feed]:
        """Yield ways to read what changed since the noted version, the cheapest first."""

    def all_rows(self, memory: int) -> Feed:
        """Return the last way: compare with all rows."""
        return Feed("all rows", Scope.ALL, lambda: ((1, batch) for batch in self.batches(memory)))

    def rows(self, memory: int) -> Rows:
        """Return all rows, for a build."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches(memory))
        return Rows(reader, self.count())

    def older_error(self, since: Mapping[str, Any], version: object) -> OptionError:
        """Return the error for a version that is before the noted one."""
        return OptionError(
            f"version={version} of {since['uri']} is older than version {since['version']}, which "
            "the master has; to go back, build the master again with build_master(…, version=…)"
        )


def project(schema: pa.Schema, columns: Iterable[str] | None) -> pa.Schema:
    """Select columns of a schema, in this order; all by default."""
    if columns is None:
        return pa.schema(list(schema))
    for name in columns:
        if name not in schema.names:
            raise SchemaError.missing("table", name, schema.names)
    return pa.schema([schema.field(name) for name in columns])


def conform(
    batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, Any] | None = None
) -> pa.RecordBatch:
    """Cast a batch to a schema; columns that it lacks have one of ``values``, or are null."""
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            columns.append(cast(batch.column(field.name), field.type))
        else:
            value = pa.scalar((values or {}).get(field.name), field.type)
            columns.append(pa.repeat(value, batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
