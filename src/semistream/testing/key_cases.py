"""Cases of key types: each side has its own type, some keys are absent, some null."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.testing.case import Case, register
from semistream.testing.data import master_of, pick, stream_of, with_nulls

if TYPE_CHECKING:
    from semistream.spec import On

__all__: list[str] = []

_KEYS = 1_800  # different keys, of which the master has two thirds
_ROWS = 720  # rows of a stream


def _case(name: str, master: pa.Array, stream: pa.Array, duplicates: int = 1) -> Case:
    """Return a case whose stream draws from ``stream``; a third of ``master`` is absent."""
    present = master.filter(pa.array(np.arange(len(master)) % 3 != 1))
    keys = pa.concat_arrays([present] * duplicates)
    drawn = with_nulls(pick(stream, _ROWS // duplicates), every=50)
    return Case(name, master_of({"key": keys}), stream_of({"key": drawn}))


# (master's type, stream's type, first value): the stream also has values that the master's type
# cannot hold, wherever there are such.
_INTEGERS = {
    "int8": (pa.int8(), pa.int64(), -128),
    "int16": (pa.int16(), pa.uint8(), -1000),
    "int32": (pa.int32(), pa.int32(), -1200),
    "int64": (pa.int64(), pa.int16(), -(2**15)),
    "int64_of_uint64": (pa.int64(), pa.uint64(), 2**63 - _KEYS),
    "uint8": (pa.uint8(), pa.int8(), 0),
    "uint16": (pa.uint16(), pa.uint32(), 2**16 - _KEYS),
    "uint32": (pa.uint32(), pa.int64(), 2**32 - _KEYS),
    "uint64": (pa.uint64(), pa.uint64(), 2**63 - _KEYS // 2),
    "uint64_of_int64": (pa.uint64(), pa.int64(), 0),
}


def _within(values: range, kind: pa.DataType) -> pa.Array:
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = int(limits.min), int(limits.max)
    return pa.array([value for value in values if low <= value <= high], kind)


def _integer_case(name: str, master: pa.DataType, stream: pa.DataType, first: int) -> Case:
    ours = range(first - _KEYS // 8, first + _KEYS + _KEYS // 8)
    theirs = _within(range(first, first + _KEYS), master)
    return _case(name, theirs, _within(ours, stream), duplicates=max(1, 1200 // len(theirs)))


for _name, _types in _INTEGERS.items():
    register(partial(_integer_case, _name, *_types), _name)


def _words(rows: int) -> pa.Array:
    # Of all lengths around 8, the width at which the hash folds, and with a common beginning.
    return pa.array([f"{'x' * (i % 9)}-{i}-é{'y' * (i % 7)}" for i in range(rows)])


_NUMBERS = pa.array(np.arange(_KEYS))
_WORDS = _words(_KEYS)
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_MOD = pa.array(np.arange(_KEYS) % 40)
_DAYS = pa.array(np.arange(_KEYS, dtype=np.int32) - 700, pa.int32()).cast(pa.date32())
_TIMES = pa.array(np.arange(_KEYS) * 1_000_003 - 10**9, pa.timestamp("us", "Europe/Vienna"))
_OTHERS = {
    "string": (_WORDS, _WORDS),
    "string_of_large_string": (_WORDS, _WORDS.cast(pa.large_string())),
    "string_of_dictionary": (_WORDS, _WORDS.dictionary_encode()),
    "dictionary": (_WORDS.cast(_DICTIONARY), _WORDS),
    "binary": (_WORDS.cast(pa.binary()), _WORDS.cast(pa.large_binary())),
    "fixed_size_binary": (pa.array([b"%06d" % i for i in range(_KEYS)], pa.binary(6)),) * 2,
    "date32": (_DAYS, _DAYS),
    "date64": (_DAYS.cast(pa.date64()),) * 2,
    "timestamp": (_TIMES, _TIMES),
    "timestamp_ns": (_TIMES.cast(pa.int64()).cast(pa.timestamp("ns")),) * 2,
    "decimal128": (_NUMBERS.cast(pa.decimal128(21, 2)),) * 2,
    "decimal256": (_NUMBERS.cast(pa.decimal256(40, 3)),) * 2,
}


for _name, _sides in _OTHERS.items():
    register(partial(_case, _name, *_sides), _name)


@register
def string_view() -> Case:
    """Use a stream of string views, and a master of large strings."""
    made = _case("string_view", _WORDS.cast(pa.large_string()), _WORDS)
    viewed = [_replace(batch, "key", batch["key"].cast(pa.string_view())) for batch in made.stream]
    return replace(made, stream=tuple(viewed))


def _replace(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)


@register
def boolean() -> Case:
    """Use one key whose rows fill many pages, asked for a few times."""
    master = pa.array([True] * 1_500 + [None] * 10)
    stream = pa.array([True, False, None, True, True, False], pa.bool_())
    return Case("boolean", master_of({"key": master}), stream_of({"key": stream}, [2, 2]))


def _composite(name: str, columns: dict[str, pa.Array], names: dict[str, str], on: On) -> Case:
    """Return a case with a key of several columns; ``names``: master's name → stream's."""
    rows = np.random.default_rng(5).permutation(_KEYS)
    present = pa.array(rows[: _KEYS * 2 // 3])
    master = {key: with_nulls(column.take(present), 40) for key, column in columns.items()}
    drawn = pick(pa.array(rows), _ROWS)
    stream = {names[key]: column.take(drawn) for key, column in columns.items()}
    first = next(iter(stream))
    stream[first] = with_nulls(stream[first], 30)
    return Case(name, master_of(master), stream_of(stream), on, tuple(columns))


@register
def integer_and_string() -> Case:
    """Use a composite whose parts repeat, under other names in the stream, in another order."""
    columns = {"shop": pa.array(np.arange(_KEYS) // 40, pa.int16()), "code": _words(40).take(_MOD)}
    names = {"shop": "outlet", "code": "item"}
    return _composite("integer_and_string", columns, names, {"item": "code", "outlet": "shop"})


@register
def string_and_date() -> Case:
    """Use a composite with nulls in either part, on both sides."""
    columns = {"code": _words(40).take(_MOD), "day": _DAYS.take(pa.array(np.arange(_KEYS) // 40))}
    names = {"code": "code", "day": "day"}
    return _composite("string_and_date", columns, names, ["code", "day"])


@register
def unsigned_and_boolean() -> Case:
    """Use a composite of mixed widths: the stream's integers are signed, some negative."""
    numbers = pa.array(np.arange(_KEYS) // 2, pa.uint64())
    columns = {"number": numbers, "flag": pa.array(np.arange(_KEYS) % 2 == 0)}
    made = _composite("unsigned_and_boolean", columns, {c: c for c in columns}, list(columns))
    stream = []
    for batch in made.stream:
        signed = batch["number"].cast(pa.int64())
        sign = pc.if_else(pc.equal(pc.bit_wise_and(signed, 7), 3), -1, 1)
        stream.append(_replace(batch, "number", pc.multiply(signed, sign)))
    return replace(made, stream=tuple(stream))
