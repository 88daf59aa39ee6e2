"""Cases of data: duplicates, absent keys, skew, drift, bursts, sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from semistream.testing.case import Case, register
from semistream.testing.data import fixed, master_of, pick, stream_of, with_nulls
from semistream.workloads import Stream, Zipf, master_table

__all__: list[str] = []

_KEYS = 1_600
_ROWS = 800
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
