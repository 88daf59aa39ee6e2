"""Join keys as 64-bit codes.

The engine orders, indexes and matches rows by a signed 64-bit code of their key: the value itself
for a single integer key, a seeded hash of the key otherwise. Two equal keys have the same code; the
reverse holds for integers only, so real keys are compared where output is made (`Keys.exact`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow.types import buffer, decode, plain_type
from semistream.errors import SchemaError
from semistream.kernels.hashing import hash_bytes, hash_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    TypeName = Callable[[pa.DataType], str]
    """Return the name of a type, for messages."""
    Words = npt.NDArray[np.uint64]

__all__ = ["Codes", "Keys", "is_among", "null_keys", "random_salt"]

_INT64_MAX = 2**63 - 1
_SIGN = np.uint64(1 << 63)
_CHECKS = np.uint64(0x5EED5EED5EED5EED)


@dataclass(frozen=True)
class Codes:
    """The codes of some rows, and which of those rows can match at all."""

    values: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]
    """False where a key is null, or is a number that the master's type cannot hold."""
    all_valid: bool


def is_among(codes: npt.NDArray[np.int64], some: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which codes are among some that are in order.

    Examples
    --------
    >>> is_among(np.array([7, 3, 8]), np.array([3, 5, 7])).tolist()
    [True, True, False]
    """
    if not len(some):
        return np.zeros(len(codes), dtype=np.bool_)
    place = np.minimum(np.searchsorted(some, codes), len(some) - 1)
    return np.asarray(some[place] == codes)


def _canonical(name: str, kind: pa.DataType, type_name: TypeName = str) -> pa.DataType:
    """Return the type in which keys of type ``kind`` are compared, or refuse it."""
    t, plain = pa.types, plain_type(kind)
    if isinstance(kind, pa.BaseExtensionType):
        plain = kind  # not comparable: what its bytes mean is not known here
    if t.is_integer(plain):
        return pa.uint64() if plain == pa.uint64() else pa.int64()
    if t.is_large_string(plain):
        return pa.string()
    if t.is_large_binary(plain):
        return pa.binary()
    temporal = t.is_date(plain) or t.is_timestamp(plain)
    text = t.is_string(plain) or t.is_binary(plain) or t.is_fixed_size_binary(plain)
    if temporal or text or t.is_decimal(plain) or t.is_boolean(plain):
        return plain
    msg = (
        f"column {name!r} of type {type_name(kind)} cannot be a join key; a key is an integer, "
        "string, binary, date, timestamp, decimal or boolean, or several columns of these. Cast it "
        "first."
    )
    raise SchemaError(msg)


@dataclass(frozen=True)
class Keys:
    """How the keys of one master table become codes.

    Examples
    --------
    >>> keys = Keys.of(pa.schema([("id", pa.int32())]), ["id"])
    >>> keys.exact, keys.encode([pa.array([7, None, 3])]).values.tolist()
    (True, [7, 0, 3])
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    seed: int = field(default=0, repr=False)
    """128 bits that hashes depend on: without them no one can choose keys that all have one code,
    each of which would be compared with all others. Exact codes need none."""

    @classmethod
    def of(cls, schema: pa.Schema, names: Sequence[str], seed: int = 0) -> Keys:
        """Describe the key columns ``names`` of a master with this schema."""
        for name in names:
            if name not in schema.names:
                raise SchemaError.missing("master", name, schema.names)
        kinds = tuple(_canonical(n, schema.field(n).type) for n in names)
        return cls(tuple(names), kinds, seed)

    @property
    def exact(self) -> bool:
        """Whether equal codes mean equal keys: so for a single integer key."""
        return len(self.types) == 1 and pa.types.is_integer(self.types[0])

    def check(
        self,
        stream: pa.Schema,
        names: Sequence[str],
        whose: str = "stream's",
        type_name: TypeName = str,
    ) -> None:
        """Refuse columns, by default the stream's, whose types do not compare with the key's."""
        for name, wanted, master in zip(names, self.types, self.names, strict=True):
            found = _canonical(name, stream.field(name).type, type_name)
            if found != wanted and not (pa.types.is_integer(found) and pa.types.is_integer(wanted)):
                given, compared = type_name(stream.field(name).type), type_name(wanted)
                msg = (
                    f"the {whose} key {name!r} is {given}, the master's {master!r} is compared as "
                    f"{compared}. Integers of any width go together, other types must be equal: "
                    f"cast the {whose} column to {compared}, or build the master with {given}."
                )
                raise SchemaError(msg)

    def canonical(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Bring key columns into the types in which they are compared."""
        pairs = zip(columns, self.types, strict=True)
        return [_convert(decode(column), kind) for column, kind in pairs]

    def encode(self, columns: Sequence[pa.Array]) -> Codes:
        """Return the code of each row."""
        columns = self.canonical(columns)
        valid = np.ones(len(columns[0]), dtype=np.bool_)
        for column in columns:
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        codes = _integers(columns[0]) if self.exact else _hashes(columns, self.seed_words)
        return Codes(codes, valid, not any(column.null_count for column in columns))

    def checks(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """Return a second hash of each key, of another seed: with the code, 128 bits."""
        columns = self.canonical(columns)
        out = np.full(len(columns[0]), _CHECKS)
        for column in columns:
            _fold(column, self.seed_words, out)
        return out.view(np.int64)

    @property
    def seed_words(self) -> Words:
        """The seed as two words of 64 bits."""
        return np.frombuffer(self.seed.to_bytes(16, "little"), dtype=np.uint64)

    def decode(self, codes: pa.Array) -> pa.Array:
        """Return the keys that exact codes stand for, in the type they are compared in."""
        if self.types[0] != pa.uint64():
            return codes
        return pa.array(codes.to_numpy().view(np.uint64) ^ _SIGN)


def random_salt() -> int:
    """Return an odd number of 64 bits for an index of codes; see `kernels.chain_values`."""
    return secrets.randbits(64) | 1


def null_keys(columns: Sequence[pa.Array]) -> int:
    """Count the rows whose key is null: a key of several columns, where one of them is.

    Examples
    --------
    >>> null_keys([pa.array([1, None, None]), pa.array(["a", "b", None])])
    2
    """
    some = [column for column in columns if column.null_count]
    if len(some) < 2:
        return sum(int(column.null_count) for column in some)
    return int(np.count_nonzero(np.any([c.is_null().to_numpy(False) for c in some], axis=0)))


def _convert(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a key column; an integer that does not fit matches nothing and becomes null."""
    if array.type == kind:
        return array
    if array.type == pa.uint64():
        array = pc.if_else(pc.less_equal(array, pa.scalar(_INT64_MAX, pa.uint64())), array, None)
    elif kind == pa.uint64() and pa.types.is_signed_integer(array.type):
        array = pc.if_else(pc.greater_equal(array, pa.scalar(0, array.type)), array, None)
    return array.cast(kind)


def _integers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return integers as int64 in natural order; uint64 is moved down by 2^63."""
    words = _words(array)
    return (words ^ _SIGN).view(np.int64) if array.type == pa.uint64() else words.view(np.int64)


def _words(array: pa.Array) -> Words:
    if array.null_count:
        array = array.fill_null(0)
    return buffer(array, 1, np.uint64)


def _hashes(columns: Sequence[pa.Array], seed: Words) -> npt.NDArray[np.int64]:
    out = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        _fold(column, seed, out)
    return out.view(np.int64)


def _fold(array: pa.Array, seed: Words, out: Words) -> None:
    """Fold one key column into the hashes; what null rows get does not matter."""
    t, kind = pa.types, array.type
    if t.is_boolean(kind) or t.is_date32(kind):
        hash_words(_words(array.cast(pa.int32()).cast(pa.int64())), seed, out)
    elif t.is_decimal(kind) or t.is_fixed_size_binary(kind):
        width = kind.bit_width // 8
        offsets = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width
        hash_bytes(offsets, _bytes(array, 1), seed, out)
    elif t.is_string(kind) or t.is_binary(kind):
        hash_bytes(buffer(array, 1, np.int32, more=1), _bytes(array, 2), seed, out)
    else:
        hash_words(_words(array), seed, out)


def _bytes(array: pa.Array, number: int) -> npt.NDArray[np.uint8]:
    content = array.buffers()[number]
    return np.frombuffer(b"" if content is None else content, dtype=np.uint8)
