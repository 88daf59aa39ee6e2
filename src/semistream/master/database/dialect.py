# ruff: noqa: S608 - names are quoted here, values are parameters
"""Dialects of databases: drivers, SQL, errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semistream.master.database.address import Address
    from semistream.master.database.columns import Column

__all__ = ["Description", "Dialect", "Statement", "Table", "check_conditions", "join_numbers"]

_COMPARED = {"=", "!=", "<", "<=", ">", ">="}
_OPERATORS = (*sorted(_COMPARED), "in", "not in", "is null", "is not null")


@dataclass(frozen=True)
class Statement:
    """SQL, with ``%s`` for each of its parameters."""

    sql: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Description:
    """A table as the database describes it."""

    columns: tuple[Column, ...]
    rows: int
    """Its estimate; 0 where there is none."""
    indexes: tuple[tuple[bool, tuple[str, ...]], ...]
    """For each index whether it is unique, and its columns."""


@dataclass(frozen=True)
class Table:
    """A table or a view, and the columns that are read of it."""

    parts: tuple[str, ...]
    """Its name: the schema's if given, then its own."""
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    """All that are read, key included."""
    where: tuple[tuple[Any, ...], ...] = ()
    """Conditions that all must hold: column, operator, value."""
    unique: bool = False
    """Whether an index finds a key, and one row at the most."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return ".".join(self.parts)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @property
    def keys(self) -> list[Column]:
        """The key's columns."""
        return [self.by_name[name] for name in self.key]

    @property
    def payload(self) -> list[Column]:
        """The other columns."""
        return [column for column in self.columns if column.name not in self.key]

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([(column.name, column.kind) for column in self.columns])

    def only(self, names: Sequence[str]) -> Table:
        """Return the table with the key and these columns, in the table's order."""
        wanted = {*self.key, *names}
        return replace(self, columns=tuple(c for c in self.columns if c.name in wanted))


def check_conditions(
    where: Sequence[Sequence[Any]] | None, names: Sequence[str]
) -> tuple[tuple[Any, ...], ...]:
    """Return conditions in a form fit for SQL; refuse what has none."""
    checked = []
    for condition in where or ():
        parts = () if isinstance(condition, str) else tuple(condition)
        if len(parts) not in {2, 3} or not isinstance(parts[1], str):
            msg = (
                f"where={condition!r} is not a condition; give tuples of column, operator and "
                "value, as where=[('active', '=', True), ('country', 'in', ['AT', 'NZ'])]. What "
                "these cannot say, say in a view of the database, and give its name as table="
            )
            raise OptionError(msg)
        column, operator, *value = parts
        if column not in names:
            raise SchemaError.missing("table", str(column), names)
        if operator.lower() not in _OPERATORS:
            raise OptionError.unknown("where's operator", operator, _OPERATORS)
        if bool(value) == operator.lower().startswith("is "):
            msg = f"where={condition!r}: 'is null' and 'is not null' have no value, all others one"
            raise OptionError(msg)
        for each in value:
            _check_value(condition, operator.lower(), each)
        checked.append((column, operator.lower(), *(_as_tuple(v) for v in value)))
    return tuple(checked)


def _check_value(condition: Sequence[Any], operator: str, value: Any) -> None:  # noqa: ANN401
    """Refuse a value with which a condition would hold for no row, or be no SQL."""
    several = _as_tuple(value) if operator in {"in", "not in"} else (value,)
    if not isinstance(several, tuple) or not several:
        msg = (
            f"where={condition!r}: {operator!r} needs a list with a value at the least; leave the "
            "condition out, or give one value with '=' or '!='"
        )
        raise OptionError(msg)
    if any(v is None for v in several):
        msg = (
            f"where={condition!r}: nothing is equal to a null, nor unequal; say "
            f"({condition[0]!r}, 'is null') or ({condition[0]!r}, 'is not null')"
        )
        raise OptionError(msg)


def _as_tuple(value: Any) -> Any:  # noqa: ANN401 - whatever the driver can send
    return tuple(value) if isinstance(value, (list, set, frozenset, tuple)) else value


class Dialect(ABC):
    """How one kind of database is queried; it has no state."""

    lenenc: ClassVar[bool]
    """How lengths of values travel, see `decode_rows`."""

    @abstractmethod
    def connect(self, address: Address) -> Any:  # noqa: ANN401 - the driver's own type
        """Connect; the driver's errors come as they are."""

    @abstractmethod
    def describe(self, connection: Any, parts: Sequence[str]) -> Description | None:  # noqa: ANN401
        """Describe a table; return None if there is none."""

    @abstractmethod
    def messages(self, connection: Any, statement: Statement) -> Iterator[bytes]:  # noqa: ANN401
        """Run a query; yield its rows as they come over the wire."""

    @abstractmethod
    def is_transient(self, error: Exception) -> bool | None:
        """Return whether a retry can help; None if it is no error of the database."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Quote an identifier, and double the driver's sign for a parameter."""

    @abstractmethod
    def key_problem(self, column: Column) -> str:
        """Return why a column cannot be a key; empty if it can."""

    def can_hold(self, column: Column, values: pa.Array) -> pa.Array:  # noqa: ARG002
        """Return which keys the column can hold at all; a query for others would be refused."""
        t = pa.types
        if t.is_date32(values.type) or t.is_timestamp(values.type):
            kind = date if t.is_date32(values.type) else datetime
            first, last = (pa.scalar(d).cast(values.type) for d in (kind.min, kind.max))
            return pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))
        return pa.repeat(True, len(values))

    @abstractmethod
    def _key_source(self, keys: Sequence[Column], values: Sequence[pa.Array]) -> Statement:
        """Return a FROM item ``k`` with the keys ``k0``, ``k1``, … and their numbers ``n``."""

    @abstractmethod
    def _same_key(self, column: Column, number: int) -> str:
        """Return the condition that a column is equal to a key of `_key_source`."""

    def by_keys(self, table: Table, values: Sequence[pa.Array]) -> Statement:
        """Query for the rows of some keys, in their order: number of the key, key, payload."""
        source = self._key_source(table.keys, values)
        same = " AND ".join(self._same_key(c, i) for i, c in enumerate(table.keys))
        conditions = self._conditions(table)
        match = self._join(table, " AND ".join(filter(None, [same, conditions.sql])))
        sql = f"SELECT k.n, {self._selection(table)} FROM {source.sql} {match} ORDER BY k.n"
        return Statement(sql, source.parameters + conditions.parameters)

    def _join(self, table: Table, condition: str) -> str:
        """Join the keys with a table."""
        return f"JOIN {self._name(table)} AS t ON {condition}"

    def sample(self, table: Table, rows: int) -> Statement:
        """Query for some rows."""
        conditions = self._conditions(table)
        where = f" WHERE {conditions.sql}" if conditions.sql else ""
        sql = f"SELECT {self._selection(table)} FROM {self._name(table)} AS t{where}"
        return Statement(f"{sql} LIMIT {int(rows)}", conditions.parameters)

    def _selection(self, table: Table) -> str:
        columns = [*table.keys, *table.payload]
        return ", ".join(c.sql.format(self._column(c.name)) for c in columns)

    def _column(self, name: str) -> str:
        return f"t.{self.quote(name)}"

    def _name(self, table: Table) -> str:
        return ".".join(self.quote(part) for part in table.parts)

    def _conditions(self, table: Table) -> Statement:
        parts, parameters = [], []
        for name, operator, *value in table.where:
            column = self._column(name)
            if operator in _COMPARED:
                parts.append(f"{column} {operator} %s")
                parameters += value
            elif value:
                parts.append(f"{column} {operator} ({', '.join(['%s'] * len(value[0]))})")
                parameters += value[0]
            else:
                parts.append(f"{column} {operator}")
        return Statement(" AND ".join(parts), tuple(parameters))


def join_numbers(numbers: pa.Array, between: str) -> str:
    """Write numbers as one text, without an object for each.

    Examples
    --------
    >>> join_numbers(pa.array([1, -2, 3]), ", ")
    '1, -2, 3'
    """
    texts = pa.ListArray.from_arrays([0, len(numbers)], numbers.cast(pa.string()))
    return str(pc.binary_join(texts, between)[0].as_py())
