"""Cases of data: duplicates, absent keys, skew, drift, bursts, sizes, columns of all types."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.testing.case import Case, register
from semistream.testing.data import batches, fixed, master_of, pick, stream_of, text, with_nulls
from semistream.workloads import Stream, Zipf, master_table

__all__: list[str] = []

_KEYS = 1_600
_ROWS, _FEW = 800, 600
_DOUBLED = pa.array(np.arange(_KEYS) * 2)  # so that every second number is absent, between others


def _zipf_case(name: str, exponent: float, scatter: bool) -> Case:
    stream = Stream(Zipf(_KEYS, exponent, scatter), seed=7, row_bytes=110, absent=0.1)
    rows = tuple(stream.batches(_ROWS, 500))
    return Case(name, master_table(_KEYS, row_bytes=120).read_all(), rows, page_bytes=8192)


for _exponent in (0.0, 0.5, 1.0, 1.5):
    register(partial(_zipf_case, f"zipf_{_exponent}", _exponent, True), f"zipf_{_exponent}")
register(partial(_zipf_case, "zipf_in_key_order", 1.0, False), "zipf_in_key_order")


@register
def drift() -> Case:
    """Change the hot keys half-way."""
    stream = Stream(Zipf(_KEYS, 1.2), seed=8, row_bytes=110, drift_at=_ROWS)
    return Case("drift", master_table(_KEYS).read_all(), tuple(stream.batches(2 * _ROWS, 400)))


@register
def bursts() -> Case:
    """Cut batches of very different sizes, some of them empty."""
    sizes = np.random.default_rng(9).pareto(0.8, 64).astype(int).tolist()
    return Case(
        "bursts", master_of({"key": _DOUBLED}), stream_of({"key": pick(_DOUBLED, _ROWS)}, sizes)
    )


@register
def large_batch() -> Case:
    """Offer one batch that is larger than the window, whatever the algorithm."""
    keys = pick(_DOUBLED, 2 * _ROWS, 0.8)
    return Case("large_batch", master_of({"key": _DOUBLED}), stream_of({"key": keys}, [2 * _ROWS]))


@register
def empty_batches() -> Case:
    """Offer empty batches first, last, and in a row."""
    drawn = pick(_DOUBLED, 800)
    stream = stream_of({"key": drawn}, [0, 300, 0, 0, 400])
    nothing = stream[0].slice(0, 0)
    return Case("empty_batches", master_of({"key": _DOUBLED}), (*stream, nothing))


@register
def only_empty_batches() -> Case:
    """Offer no row at all."""
    nothing = stream_of({"key": _DOUBLED})[0].slice(0, 0)
    return Case("only_empty_batches", master_of({"key": _DOUBLED}), (nothing, nothing))


@register
def one_key() -> Case:
    """Ask for the same key in all rows."""
    keys = pa.array(np.full(_ROWS, 998))
    return Case("one_key", master_of({"key": _DOUBLED}), stream_of({"key": keys}))


@register
def all_absent() -> Case:
    """Ask for absent keys only: they lie between, below and above the master's."""
    keys = np.arange(_ROWS) * 2 - 301
    return Case("all_absent", master_of({"key": _DOUBLED}), stream_of({"key": pa.array(keys)}))


@register
def all_absent_strings() -> Case:
    """Ask for absent keys only, where keys are hashed."""
    master = pa.array([f"key {i}" for i in range(_KEYS)])
    keys = pa.array([f"kez {i}" for i in range(_ROWS)])
    return Case("all_absent_strings", master_of({"key": master}), stream_of({"key": keys}))


@register
def null_keys() -> Case:
    """Make a third of the keys null on both sides; one batch has no other."""
    keys = with_nulls(pick(_DOUBLED, _ROWS), 3)
    stream = stream_of({"key": pa.concat_arrays([pa.nulls(200, pa.int64()), keys])}, [200])
    return Case("null_keys", master_of({"key": with_nulls(_DOUBLED, 3)}), stream)


@register
def duplicates() -> Case:
    """Have none to some six rows a key, in no order."""
    master = np.random.default_rng(10).integers(0, 700, _KEYS)
    keys = pick(pa.array(np.arange(700)), _ROWS // 2)
    return Case("duplicates", master_of({"key": pa.array(master)}), stream_of({"key": keys}))


def _giant_case(name: str, kind: pa.DataType) -> Case:
    """Have more rows of one key than a page holds, and nearly as many of another."""
    master = np.concatenate([np.arange(1_000), np.full(1_200, 500), np.full(90, 501)])
    common = np.random.default_rng(11).integers(-100, 1_100, 600)
    keys = np.where(np.arange(600) % 200 == 17, 500, common + (common == 500))
    tables = (pa.array(values).cast(kind) for values in (master, keys))
    return Case(name, master_of({"key": next(tables)}), stream_of({"key": next(tables)}))


register(partial(_giant_case, "giant_key", pa.int64()), "giant_key")
register(partial(_giant_case, "giant_string_key", pa.string()), "giant_string_key")


@register
def giant_key_only() -> Case:
    """Join a master of a single key, with thousands of rows."""
    stream = stream_of({"key": pa.array([6, 7, 8, None, 7])}, [3])
    return Case("giant_key_only", master_of({"key": pa.array(np.full(2_000, 7))}), stream)


@register
def empty_master() -> Case:
    """Join a master without rows."""
    master = master_of({"key": pa.array([], pa.int64())})
    return Case("empty_master", master, stream_of({"key": pick(_DOUBLED, 500)}), resident=None)


@register
def null_master() -> Case:
    """Join a master whose keys are all null."""
    master = master_of({"key": pa.nulls(100, pa.int64())})
    return Case("null_master", master, stream_of({"key": pick(_DOUBLED, 500)}), resident=None)


@register
def one_row_master() -> Case:
    """Join a master of one row."""
    keys = pa.array([4, 2, None, 6, 4, 4])
    master = master_of({"key": pa.array([4])})
    return Case("one_row_master", master, stream_of({"key": keys}, [2]), resident=None)


@register
def wide_rows() -> Case:
    """Make each master row larger than a page; the budget holds few of them."""
    keys = pa.array(np.arange(120))
    master = pa.table({"key": keys, "photo": fixed(120, 5_000)})
    stream = stream_of({"key": pick(pa.array(np.arange(140)), 400)})
    return Case("wide_rows", master, stream, memory=160 * 1024)


@register
def resident() -> Case:
    """Use a budget that holds the whole master."""
    keys = with_nulls(pick(pa.array(np.arange(400)), _ROWS), 20)
    master = master_of({"key": pa.array(np.arange(600) // 2)})
    return Case("resident", master, stream_of({"key": keys}), memory=1 << 20, resident=True)


@register
def resident_strings() -> Case:
    """Use a budget that holds the whole master, where keys are hashed."""
    keys = pick(pa.array([f"key {i}" for i in range(400)]), _ROWS)
    master = master_of({"key": pa.array([f"key {i // 2}" for i in range(600)])})
    stream = stream_of({"key": keys})
    return Case("resident_strings", master, stream, memory=1 << 20, resident=True)


@register
def resident_giant_key() -> Case:
    """Use a budget that holds the whole master, in which one key has more rows than a page."""
    made = _giant_case("resident_giant_key", pa.int64())
    return replace(made, memory=2 << 20, resident=True)


@register
def variable_width() -> Case:
    """Vary the width of rows of both sides, from nothing to hundreds of bytes."""
    master = pa.table({"key": _DOUBLED, "a": text(_KEYS, 400, 1), "b": text(_KEYS, 30, 2)})
    rows = {"key": with_nulls(pick(_DOUBLED, _FEW), 90), "c": text(_FEW, 600, 3)}
    stream = pa.record_batch(rows | {"d": text(_FEW, 9, 4).cast(pa.large_string())})
    return Case("variable_width", master, batches(stream), memory=80 * 1024)


@register
def uneven_pages() -> Case:
    """Make the rows of some pages wide and those of others narrow; ask for the narrow first."""
    texts = ["x" * (300 if i < _KEYS // 2 else i % 3) for i in range(_KEYS)]
    numbers = pa.array(np.arange(_KEYS) * 7)
    master = pa.table({"key": _DOUBLED, "n": numbers, "text": texts, "m": numbers})
    keys = pa.concat_arrays([pick(_DOUBLED.slice(_KEYS // 2), _FEW, 0.2), pick(_DOUBLED, _FEW)])
    stream = pa.record_batch({"key": keys, "sale": np.arange(2 * _FEW)})
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
