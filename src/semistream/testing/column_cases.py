"""Cases of columns: what the rows carry beside their key, on both sides."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.testing.case import Case, register
from semistream.testing.data import batches, fixed, master_of, pick, text, with_nulls

__all__: list[str] = []

_KEYS = 1_600
_ROWS = 600
_DOUBLED = pa.array(np.arange(_KEYS) * 2)


@register
def variable_width() -> Case:
    """Vary the width of rows of both sides, from nothing to hundreds of bytes."""
    master = pa.table({"key": _DOUBLED, "a": text(_KEYS, 400, 1), "b": text(_KEYS, 30, 2)})
    rows = {"key": with_nulls(pick(_DOUBLED, _ROWS), 90), "c": text(_ROWS, 600, 3)}
    stream = pa.record_batch(rows | {"d": text(_ROWS, 9, 4).cast(pa.large_string())})
    return Case("variable_width", master, batches(stream), memory=80 * 1024)


@register
def uneven_pages() -> Case:
    """Make the rows of some pages wide and those of others narrow; ask for the narrow first."""
    texts = ["x" * (300 if i < _KEYS // 2 else i % 3) for i in range(_KEYS)]
    numbers = pa.array(np.arange(_KEYS) * 7)
    master = pa.table({"key": _DOUBLED, "n": numbers, "text": texts, "m": numbers})
    keys = pa.concat_arrays([pick(_DOUBLED.slice(_KEYS // 2), _ROWS, 0.2), pick(_DOUBLED, _ROWS)])
    stream = pa.record_batch({"key": keys, "sale": np.arange(2 * _ROWS)})
    return Case("uneven_pages", master, batches(stream))


def _nested(rows: int, seed: int) -> dict[str, pa.Array]:
    tags = pa.array(["red", "green", None, "blue"]).take(pa.array(np.arange(rows) % 4))
    words, lengths = text(rows, 12, seed), np.arange(rows) % 4
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    values = text(int(lengths.sum()), 8, seed + 1)
    lists = pa.ListArray.from_arrays(ends, values, mask=pa.array(np.arange(rows) % 11 == 5))
    coded = pa.ListArray.from_arrays(ends, values.dictionary_encode())
    pairs = pa.MapArray.from_arrays(
        ends, values.fill_null("none"), pa.array(np.arange(len(values)))
    )
    point = pa.StructArray.from_arrays(
        [words, tags.dictionary_encode()], ["word", "tag"], mask=pa.array(np.arange(rows) % 7 == 3)
    )
    return {
        "tags": tags.cast(pa.dictionary(pa.int8(), pa.string())),
        "lists": lists,
        "coded": coded,
        "pairs": pairs,
        "point": point,
        "triple": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3 * rows)), 3),
    }


@register
def nested() -> Case:
    """Use lists, structs, maps and dictionaries on both sides, nested too."""
    master = pa.table({"key": _DOUBLED, **_nested(_KEYS, 20)})
    columns = {f"my_{name}": array for name, array in _nested(360, 30).items()}
    stream = batches(pa.record_batch({"key": with_nulls(pick(_DOUBLED, 360), 60), **columns}))
    return Case("nested", master, stream, memory=144 * 1024)


def _rare(rows: int, seed: int) -> dict[str, pa.Array]:
    numbers, words = pa.array(np.arange(rows) + seed), text(rows, 12, seed)
    decimals = pa.array([Decimal(10**40) + i for i in range(rows)], pa.decimal256(50, 2))
    return {
        "decimal": decimals,
        "small": (pa.array(np.arange(rows) % 999, pa.int32())).cast(pa.decimal128(12, 2)),
        "view": words.cast(pa.string_view()),
        "bytes": words.cast(pa.large_binary()),
        "runs": pc.run_end_encode(pa.array(np.arange(rows) // 9)),
        "half": with_nulls(pa.array((np.arange(rows) % 99).astype(np.float16)), 8),
        "nothing": pa.nulls(rows),
        "flag": pa.array(np.arange(rows) % 3 == 0),
        "length": with_nulls((numbers.cast(pa.int64())).cast(pa.duration("us")), 5),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), fixed(rows, 16, seed)),
    }


@register
def rare_types() -> Case:
    """Use columns of the rarer types on both sides."""
    master = pa.table({"key": _DOUBLED, **_rare(_KEYS, 40)})
    columns = {"key": pick(_DOUBLED, 360), **_rare(360, 50)}
    stream = batches(pa.record_batch(columns))
    return Case("rare_types", master, stream, memory=80 * 1024, prefix="master_")


@register
def many_dictionary_values() -> Case:
    """Use more dictionary values in all than the index type counts, fewer a batch."""
    kind = pa.dictionary(pa.int8(), pa.string())
    keys = pick(_DOUBLED, 700)
    words = pa.array([f"word {i}" for i in range(700)])
    pieces = [
        pa.record_batch({"key": keys.slice(i, 100), "word": words.slice(i, 100).cast(kind)})
        for i in range(0, 700, 100)
    ]
    return Case("many_dictionary_values", master_of({"key": _DOUBLED}), tuple(pieces))
