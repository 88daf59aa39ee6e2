"""Seeded, synthetic workloads: a skewed stream, and the master it joins with.

Master keys are ``0..keys-1``, or every ``stride``-th number, so that absent keys lie between
them; or those numbers written out as strings. The same arguments give the same rows, whatever the
batch size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import exp, expm1, log, log1p
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Columns = Mapping[str, NDArray[np.generic]]

__all__ = ["Stream", "Zipf", "key_strings", "master_rows", "master_table"]

_MOST_KEYS, _MOST_ROWS, _MOST_BYTES = 2**40, 2**63 - 1, 2**20
_BATCH_ROWS, _BATCH_BYTES = 65_536, 8 << 20
_KINDS = {"an int": (int, np.integer), "a number": (int, float, np.number)}
_STREAM = {"key": pa.int64(), "sale": pa.int64(), "quantity": pa.int32()}
_MASTER = {"key": pa.int64(), "surrogate": pa.int64(), "price": pa.float64()}
_MASTER |= {"vendor": pa.int32(), "category": pa.int32()}

# The odd numbers of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
_GAMMA, _MIX1, _MIX2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _check(
    name: str, value: float, least: float, most: float, way_out: str, kind: str = "an int"
) -> None:
    if not (isinstance(value, _KINDS[kind]) and least <= value <= most):
        legal = f"{kind} from {least:,} to {most:,}"
        msg = f"{name}={value!r} is not possible; it must be {legal}: {way_out}"
        raise OptionError(msg)


@njit(cache=True)
def _area(x: float, e: float) -> float:
    """Integrate t^-exponent from 1 to ``x``, where ``e = 1 - exponent``."""
    return expm1(e * log(x)) / e if e else log(x)


@njit(cache=True)
def _area_end(area: float, e: float) -> float:
    """Invert ``_area``."""
    if abs(e) < 1e-3:  # here the power, though faster, would lose digits
        return exp(log1p(area * e) / e) if e else exp(area)
    # At the far end of a steep curve rounding may bring the base to 0 or below.
    return float(max(1.0 + area * e, 1e-300) ** (1.0 / e))


@njit(cache=True)
def _draw_ranks(rng: np.random.Generator, n: int, keys: int, exponent: float) -> Ints:
    """Draw ranks by rejection-inversion (Hörmann and Derflinger 1996)."""
    e = 1.0 - exponent
    low = _area(1.5, e) - 1.0
    span = _area(keys + 0.5, e) - low
    squeeze = 2.0 - _area_end(_area(2.5, e) - 2.0**-exponent, e)
    ranks = np.empty(n, np.int64)
    for i in range(n):
        while True:
            area = low + span * rng.random()
            # Clamping the rank instead would cost a branch that is often mispredicted.
            x = max(min(_area_end(area, e), float(keys)), 0.5)
            rank = int(x + 0.5)
            # The squeeze spares nearly all draws the powers of the full test.
            if rank - x <= squeeze or area >= _area(rank + 0.5, e) - rank**-exponent:
                break
        ranks[i] = rank
    return ranks


@njit(cache=True)
def _scatter(ranks: Ints, keys: int) -> Ints:
    """Permute 0..keys-1: invertible steps on a power of two, walked until back in the range."""
    bits = 0
    while 1 << bits < keys:
        bits += 1
    mask, end = np.uint64((1 << bits) - 1), np.uint64(keys)
    half = np.uint64(max((bits + 1) // 2, 1))
    out = np.empty_like(ranks)
    for i in range(ranks.size):
        x = np.uint64(ranks[i] - 1)
        while True:  # cycle-walking: Black and Rogaway, CT-RSA 2002
            for _ in range(3):
                x = ((x + _GAMMA) * _MIX1) & mask
                x ^= x >> half
            if x < end:
                break
        out[i] = x
    return out


@njit(cache=True)
def _hashes(ids: Words, salts: Words) -> Words:
    """Return a word per id and salt (splitmix64): for one salt no two ids have the same."""
    out = np.empty((ids.size, salts.size), np.uint64)
    for i in range(ids.size):
        for j in range(salts.size):
            x = ids[i] ^ salts[j]
            x = (x ^ (x >> np.uint64(30))) * _MIX1
            x = (x ^ (x >> np.uint64(27))) * _MIX2
            out[i, j] = x ^ (x >> np.uint64(31))
    return out


@cache
def _harmonic(keys: int, exponent: float) -> float:
    """Sum r^-exponent over 1..keys: a head term by term, the rest by Euler-Maclaurin."""
    head, e = min(keys, 10_000), 1.0 - exponent
    total = float(np.sum(np.arange(1.0, head + 1.0) ** -exponent))
    ends = np.array([head, keys], np.float64)
    total += _area(ends[1], e) - _area(ends[0], e)
    # The first term left out is below 1e-15 of the sum.
    return total + float(np.diff(ends**-exponent / 2 - exponent * ends ** (e - 2) / 12)[0])


@dataclass(frozen=True)
class Zipf:
    """Keys 0..keys-1, of which the one with rank r is drawn in proportion to 1/r^exponent.

    No table of the keys is held in memory.

    Parameters
    ----------
    keys
        How many keys there are.
    exponent
        The skew: 0 is uniform, 1 is Zipf's law.
    scatter
        Spread the hot keys over the whole range, by a fixed permutation. Without it rank r is
        key r-1, so that the hot keys lie side by side, as the X-HYBRIDJOIN papers assume.

    Examples
    --------
    >>> zipf = Zipf(1000, exponent=1.0, scatter=False)
    >>> zipf.sample(8, np.random.default_rng(1)).tolist()
    [25, 689, 1, 680, 5, 12, 274, 11]
    >>> zipf.probability([1, 2, 4]).round(4).tolist()
    [0.1336, 0.0668, 0.0334]

    References
    ----------
    W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone
    discrete distributions", ACM TOMACS 6(3), 1996.
    """

    keys: int
    exponent: float = 1.0
    scatter: bool = True

    def __post_init__(self) -> None:
        _check("keys", self.keys, 1, _MOST_KEYS, "write 10**6, not 1e6")
        _check("exponent", self.exponent, 0, 10, "0 is uniform, 1 is Zipf's law", "a number")

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Draw ``n`` keys; to draw n and then m gives the same as to draw n + m."""
        return self.key_of(self.ranks(n, rng))

    def ranks(self, n: int, rng: np.random.Generator) -> Ints:
        """Draw ``n`` ranks, from 1 (the hottest) to ``keys``."""
        _check("n", n, 0, _MOST_ROWS, "it is how many to draw")
        return _draw_ranks(rng, int(n), int(self.keys), float(self.exponent))

    def probability(self, rank: ArrayLike) -> NDArray[np.float64]:
        """Compute the exact probability of a rank, or of an array of them."""
        exponent = float(self.exponent)
        weight = self._checked(rank).astype(np.float64) ** -exponent
        return np.asarray(weight / _harmonic(int(self.keys), exponent))

    def key_of(self, ranks: ArrayLike) -> Ints:
        """Return the key that has this rank: a bijection from 1..keys to 0..keys-1."""
        checked = self._checked(ranks)
        if not self.scatter:
            return np.asarray(checked - 1)
        return _scatter(checked.ravel(), int(self.keys)).reshape(checked.shape)

    def _checked(self, ranks: ArrayLike) -> Ints:
        checked = np.asarray(ranks, np.int64)
        low, high = int(checked.min(initial=1)), int(checked.max(initial=1))
        _check("rank", low if low < 1 else high, 1, self.keys, "the hottest has rank 1")
        return checked


def key_strings(keys: ArrayLike) -> pa.StringArray:
    """Write keys as strings, as streams and masters with ``strings`` have them.

    Examples
    --------
    >>> key_strings([7, 1200]).to_pylist()
    ['item-7', 'item-1200']
    """
    numbers = pa.array(np.asarray(keys, np.int64)).cast(pa.string())
    return pc.binary_join_element_wise("item-", numbers, "")


def _schema(columns: Mapping[str, pa.DataType], filler: str, row_bytes: int) -> pa.Schema:
    """Take the first columns that fit into ``row_bytes``; ``filler`` gets what is left."""
    fields, room = [], row_bytes
    for name, kind in columns.items():
        if kind.byte_width > room:
            break
        fields.append(pa.field(name, kind))
        room -= kind.byte_width
    return pa.schema([*fields, pa.field(filler, pa.binary(room))] if room else fields)


def _with_string_key(schema: pa.Schema) -> pa.Schema:
    return schema.set(0, pa.field("key", pa.string()))


def _column(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(kind):
        content = pa.py_buffer(np.ascontiguousarray(values[:, : kind.byte_width]))
        return pa.FixedSizeBinaryArray.from_buffers(kind, len(values), [None, content])
    if pa.types.is_string(kind):
        return key_strings(values)
    return pa.array(values.astype(kind.to_pandas_dtype(), copy=False))


def _texts(words: Words, mean: int) -> pa.StringArray:
    """Make a text of 0 to 2·``mean`` bytes from each row of words; the first is its length.

    Its characters have six random bits each, of ASCII.
    """
    lengths = (words[:, 0] % np.uint64(2 * mean + 1)).astype(np.int32)
    letters = (words[:, 1:].view(np.uint8) & 63) + 48
    content = letters[np.arange(letters.shape[1]) < lengths[:, None]]
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    buffers = pa.py_buffer(offsets), pa.py_buffer(content)
    return pa.StringArray.from_buffers(len(lengths), *buffers)


def _record_batch(schema: pa.Schema, values: Columns) -> pa.RecordBatch:
    columns = [_column(values[column.name], column.type) for column in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class Stream:
    """A stream of sales, with the columns ``key``, ``sale`` (0, 1, 2, ...) and ``quantity``.

    Parameters
    ----------
    zipf
        Which keys come, and how often.
    seed
        The same seed gives the same rows.
    row_bytes
        The width of a row, from 8. Of the columns the first that fit are there; a ``filler`` of
        zeros takes what is left.
    absent
        The fraction of rows without a match. Such a row has a drawn key plus 1, which is no master
        key if ``stride`` is 2 or more: so it is as skewed as the others, and lies on their pages.
        With a stride of 1 nothing lies between, and it is the drawn key plus ``keys``, above all.
    drift_at
        From this row on the hot keys are others: rank r gets the key that had rank r + keys/2.
    stride
        The distance of master keys, as `master_table` was given it.
    strings
        Whether keys are strings, see `key_strings`; ``row_bytes`` counts 8 for them.

    Examples
    --------
    >>> next(Stream(Zipf(100), seed=1).batches(rows=3)).to_pydict()
    {'key': [5, 33, 62], 'sale': [0, 1, 2], 'quantity': [1, 2, 3]}
    """

    zipf: Zipf
    seed: int = 0
    row_bytes: int = 20
    absent: float = 0.0
    drift_at: int | None = None
    stride: int = 1
    strings: bool = False

    def __post_init__(self) -> None:
        _check("seed", self.seed, 0, _MOST_ROWS, "0 is the default")
        _check_stride(self.stride, self.zipf.keys)
        _check("row_bytes", self.row_bytes, 8, _MOST_BYTES, "the key alone takes 8")
        _check("absent", self.absent, 0, 1, "it is a fraction, 0.05 is 5 percent", "a number")
        if self.drift_at is not None:
            _check("drift_at", self.drift_at, 0, _MOST_ROWS, "None is no drift")

    @property
    def schema(self) -> pa.Schema:
        """The columns; their widths add up to ``row_bytes``."""
        schema = _schema(_STREAM, "filler", self.row_bytes)
        return _with_string_key(schema) if self.strings else schema

    def batches(self, rows: int | None, batch_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Make the first ``rows`` rows, or go on forever if that is None.

        Each call starts anew. How the rows are cut into batches does not change them.
        """
        end = _MOST_ROWS if rows is None else rows
        _check("rows", end, 0, _MOST_ROWS, "None goes on forever")
        _check("batch_rows", batch_rows, 1, 2**31 - 1, f"{_BATCH_ROWS} is the default")
        hot, lost = np.random.default_rng(self.seed).spawn(2)
        starts = range(0, end, batch_rows)
        sales = (np.arange(start, min(start + batch_rows, end)) for start in starts)
        return (self._batch(sale, hot, lost) for sale in sales)

    def _batch(self, sale: Ints, *rngs: np.random.Generator) -> pa.RecordBatch:
        hot, lost = rngs
        ranks = self.zipf.ranks(sale.size, hot)
        if self.drift_at is not None:
            shift = self.zipf.keys // 2 * (sale >= self.drift_at)
            ranks = (ranks - 1 + shift) % self.zipf.keys + 1
        key = self.zipf.key_of(ranks) * self.stride
        beside = 1 if self.stride > 1 else self.zipf.keys
        key += beside * (lost.random(sale.size) < self.absent)
        filler = np.zeros((sale.size, self.row_bytes), np.uint8)
        values: Columns = {"key": key, "sale": sale, "quantity": sale % 10 + 1, "filler": filler}
        return _record_batch(self.schema, values)


def _check_stride(stride: int, keys: int) -> None:
    _check("stride", stride, 1, _MOST_KEYS // keys, "2 leaves a gap behind every key")


def master_rows(
    keys: ArrayLike,
    duplicate: ArrayLike = 0,
    row_bytes: int = 120,
    seed: int = 0,
    *,
    strings: bool = False,
    variable: bool = False,
) -> pa.RecordBatch:
    """Make the master rows of these keys: a function of key, duplicate number and seed alone.

    The columns are ``key``, ``surrogate`` (another in each row), ``price``, ``vendor`` and
    ``category``; those that do not fit into ``row_bytes`` are left out, from the end. What is
    left of the width is ``description``, whose random bytes do not compress.

    With ``strings`` the keys are strings, for which ``row_bytes`` counts 8. With ``variable`` the
    description is a text of 0 to twice that width, so that ``row_bytes`` is the mean.

    Examples
    --------
    >>> master_rows([7], row_bytes=32).drop_columns("surrogate").to_pylist()
    [{'key': 7, 'price': 112.17, 'vendor': 635, 'category': 48}]
    """
    _check("row_bytes", row_bytes, 16, _MOST_BYTES, "key and surrogate alone take 16")
    _check("seed", seed, 0, _MOST_ROWS, "0 is the default")
    key, number = np.broadcast_arrays(np.atleast_1d(np.asarray(keys, np.int64)), duplicate)
    # A word for each column behind the key, and for each 8 bytes of the description.
    count = max(5, -(-row_bytes // 8)) * (2 if variable else 1)
    salts = np.random.SeedSequence(seed).generate_state(count, np.uint64)
    words = _hashes((key + number * _MOST_KEYS).astype(np.uint64), salts.astype(np.uint64))
    values = {
        "key": key,
        "surrogate": words[:, 0].view(np.int64),
        "price": words[:, 1] % 100_000 / 100,
        "vendor": words[:, 2] % 1_000,
        "category": words[:, 3] % 100,
        "description": words[:, 4:].view(np.uint8),
    }
    schema = _schema(_MASTER, "description", row_bytes)
    rows = _record_batch(_with_string_key(schema) if strings else schema, values)
    last = schema.field(-1)
    if not variable or last.name != "description":
        return rows
    texts = _texts(np.ascontiguousarray(words[:, 4:]), last.type.byte_width)
    return rows.set_column(len(schema) - 1, last.name, texts)


def master_table(
    keys: int,
    row_bytes: int = 120,
    duplicates: int = 1,
    seed: int = 0,
    *,
    stride: int = 1,
    strings: bool = False,
    variable: bool = False,
) -> pa.RecordBatchReader:
    """Make the rows of keys 0, ``stride``, 2·``stride``, … in that order, a batch at a time.

    The ``duplicates`` rows of a key lie side by side, numbered from 0; `master_rows` says what
    is in them.

    Examples
    --------
    >>> master_table(3, duplicates=2).read_all()["key"].to_pylist()
    [0, 0, 1, 1, 2, 2]
    >>> master_table(3, stride=2).read_all()["key"].to_pylist()
    [0, 2, 4]
    """
    _check("keys", keys, 1, _MOST_KEYS, "write 10**6, not 1e6")
    _check("duplicates", duplicates, 1, 2**20, "1 makes the key unique")
    _check_stride(stride, keys)
    make = partial(master_rows, row_bytes=row_bytes, seed=seed, strings=strings, variable=variable)
    schema = make([]).schema  # checks the other arguments now rather than at the first read
    end, step = keys * duplicates, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes)
    numbers = (np.arange(start, min(start + step, end)) for start in range(0, end, step))
    batches = (make(n // duplicates * stride, n % duplicates) for n in numbers)
    return pa.RecordBatchReader.from_batches(schema, batches)
