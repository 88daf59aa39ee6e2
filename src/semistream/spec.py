"""What a join is: which columns meet, what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from semistream.arrow.types import plain_schema
from semistream.errors import OptionError, SchemaError
from semistream.names import check_text, listed

if TYPE_CHECKING:
    from semistream.arrow.keys import TypeName
    from semistream.master import FileMaster, Master

__all__ = ["HOW", "JoinSpec", "On", "resolve_how"]

On = str | Sequence[str] | Mapping[str, str]

HOW = {
    "inner": "inner",
    "left": "left",
    "leftouter": "left",
    "semi": "semi",
    "leftsemi": "semi",
    "anti": "anti",
    "leftanti": "anti",
}
_IMPOSSIBLE = {"right", "rightouter", "outer", "full", "fullouter", "cross"}


def resolve_how(how: str) -> str:
    """Return the join type that ``how`` stands for; Spark's synonyms are known.

    Examples
    --------
    >>> resolve_how("left_outer"), resolve_how("leftsemi")
    ('left', 'semi')
    >>> resolve_how("full")
    Traceback (most recent call last):
    semistream.errors.OptionError: how='full': a stream has no right or full join, ...
    """
    plain = str(how).lower().replace("_", "")
    if plain in HOW:
        return HOW[plain]
    if plain in _IMPOSSIBLE:
        msg = (
            f"how={how!r}: a stream has no right or full join, for it never ends: that a master "
            "row has no partner is never known. Choose inner, left, semi or anti; to list master "
            "rows without partner, join the table with what has arrived, as a batch."
        )
        raise OptionError(msg)
    raise OptionError.unknown("how", how, set(HOW.values()))


@dataclass(frozen=True)
class JoinSpec:
    """A join of one stream with one master, resolved and checked."""

    master: Master
    stream: pa.Schema
    how: str
    stream_keys: tuple[str, ...]
    """The stream's key columns, in the order of the master's."""
    payload: tuple[str, ...]
    """The master columns that come out."""
    prefix: str
    mark: str = ""
    """The column that tells rows with a match, after all others; none if empty."""

    @classmethod
    def resolve(  # noqa: PLR0913 - a join has these parts
        cls,
        master: Master,
        stream: pa.Schema,
        on: On,
        how: str,
        select: Sequence[str] | None,
        prefix: str,
        mark: str | None = None,
        *,
        type_name: TypeName = str,
    ) -> JoinSpec:
        """Check the arguments of a join against both schemas.

        ``type_name`` gives a type's name in messages: that of the system whose rows are joined.
        """
        if not isinstance(stream, pa.Schema):
            rows = isinstance(stream, pa.Table | pa.RecordBatch)  # not to be written out
            shown = f"a {type(stream).__name__}" if rows else repr(stream)
            msg = (
                f"the stream's schema is {shown}; give a pyarrow.Schema, such as that of a batch: "
                "batch.schema"
            )
            raise OptionError(msg)
        check_text("prefix", prefix, "what is put before the names of the master's columns")
        check_text("mark", mark or "", "the name of a column")
        if len(set(stream.names)) < len(stream.names):
            msg = f"the stream's columns must have different names: {stream.names}"
            raise SchemaError(msg)
        names = _stream_keys(master, stream, on)
        master.keys.check(stream, names, type_name=type_name)
        kind = resolve_how(how)
        payload = _payload(master, select) if kind in {"inner", "left"} else ()
        if mark and kind != "left":
            msg = (
                f"mark={mark!r} tells the rows of a left join that have a match; with how={how!r} "
                "all rows are of one kind: leave it out, or take how='left'"
            )
            raise OptionError(msg)
        spec = cls(master, stream, kind, names, payload, prefix, mark or "")
        spec._check_collisions()
        return spec

    def _check_collisions(self) -> None:
        both = {self.prefix + name for name in self.payload} & set(self.stream.names)
        if both:
            msg = (
                f"both stream and master have {sorted(both)}: leave the master's out with "
                "select=[…], or rename all of the master's with prefix='master_'"
            )
            raise SchemaError(msg)
        if self.mark and self.mark in self.output.names[:-1]:
            msg = f"mark={self.mark!r} is a column already; give another name"
            raise SchemaError(msg)

    @property
    def files(self) -> FileMaster:
        """The master, for what reads pages: `choose` gives a database to none that does."""
        return cast("FileMaster", self.master)

    @cached_property
    def plain_stream(self) -> pa.Schema:
        """The stream's columns as the window holds them."""
        return plain_schema(self.stream)

    @property
    def output(self) -> pa.Schema:
        """The columns that come out: the stream's, the master's without its key, the mark."""
        fields = [self.master.schema.field(name) for name in self.payload]
        named = [field.with_name(self.prefix + field.name) for field in fields]
        if self.how == "left":
            named = [field.with_nullable(True) for field in named]
        if self.mark:
            named.append(pa.field(self.mark, pa.bool_(), nullable=False))
        return pa.schema([*self.stream, *named], metadata=self.stream.metadata)


def _stream_keys(master: Master, stream: pa.Schema, on: On) -> tuple[str, ...]:
    """Return the stream's key columns in the order of the master's key."""
    pairs = _pairs(on)
    for name in pairs:
        if name not in stream.names:
            raise SchemaError.missing("stream", name, stream.names)
    by_master = {theirs: ours for ours, theirs in pairs.items()}
    if set(by_master) != set(master.key) or len(by_master) != len(pairs):
        msg = (
            f"on={on!r} does not name the master's key {list(master.key)}; where the stream's "
            f"columns have other names, give a mapping such as "
            f"on={{{', '.join(f'{stream.names[0]!r}: {key!r}' for key in master.key[:1])}}}, or "
            "build a master with the key you want"
        )
        raise SchemaError(msg)
    return tuple(by_master[name] for name in master.key)


def _pairs(on: object) -> dict[str, str]:
    """Return what ``on`` pairs: a column of the stream, and one of the master."""
    names: object = [on] if isinstance(on, str) else on
    pairs = [*names.items()] if isinstance(names, Mapping) else None
    if pairs is None and isinstance(names, Sequence):
        pairs = [(name, name) for name in names]
    if pairs is None or not all(isinstance(name, str) for pair in pairs for name in pair):
        msg = (
            f"on={on!r} names no columns; give a column's name, a list of them, or a mapping from "
            "the stream's names to the master's"
        )
        raise OptionError(msg)
    return dict(pairs)


def _payload(master: Master, select: Sequence[str] | None) -> tuple[str, ...]:
    if select is None:
        return tuple(name for name in master.schema.names if name not in master.key)
    names = listed("select", select)
    if len(set(names)) < len(names):
        msg = f"select={list(names)} names a column twice; name each once"
        raise OptionError(msg)
    for name in names:
        if name not in master.schema.names:
            raise SchemaError.missing("master", name, master.schema.names)
        if name in master.key:
            msg = f"select names {name!r}, the master's key: its value is in the stream's column"
            raise SchemaError(msg)
    return names
