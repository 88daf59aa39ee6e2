"""What a stream asks for: how often which key comes; and batches of such a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.types import encode, plain_type, row_width
from semistream.errors import OptionError
from semistream.names import unused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.master import Master
    from semistream.planning.view import View
    from semistream.spec import JoinSpec

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Demand", "draw_batches", "stream_like"]

_VARIES = 32  # bytes of a value that varies, as the plan of a join assumes
_HEAD = 10_000  # ranks that are summed one by one; behind them the integral is as good
_STEEPEST = 10  # exponent: from there on one key has all rows
_OFTEN = 200  # a key seen so often is as frequent as it looks, to 7 %
_RATES, _ROUNDS = 60, 400  # of the mixture below; more change no share by 1 %


@dataclass(frozen=True, eq=False)
class Demand:
    """The shares of stream rows that the keys of a master have, hottest first.

    Of the rows with a match ``until[i]`` ask for one of the ``ranks[i]`` hottest keys; the keys in
    between are alike.
    """

    ranks: Floats
    until: Floats
    absent: float = 0.0
    """The share of rows whose key the master lacks."""
    scattered: bool = True
    """Whether hot keys lie anywhere; else they are the first in the order of the master."""
    codes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Keys that were seen in a sample, in ascending order."""
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """How often."""

    def __post_init__(self) -> None:
        if not 0 <= self.absent < 1:
            msg = f"absent={self.absent!r} is not possible; give a share of the rows, as 0.05"
            raise OptionError(msg)

    def shares(self, keys: int) -> Floats:
        """Return the shares of ``keys`` keys that stand for all, each for its part of the ranks.

        So a cache of the hottest tenth answers as much of the small stream as of the whole one.

        Examples
        --------
        >>> Demand.zipf(1000, 1.0).shares(4).round(3).tolist()
        [0.815, 0.092, 0.054, 0.038]
        """
        ends = np.linspace(0, self.ranks[-1], keys + 1)
        return np.diff(np.interp(ends, self.ranks, self.until))

    def order(self, view: View, rng: np.random.Generator) -> Ints:
        """Return the key of the view for each rank: at random, or those seen most often first."""
        count = view.present.num_rows
        if not self.scattered:
            return np.arange(count)
        order = rng.permutation(count)
        if len(self.codes):
            codes = view.keys.encode(view.present.columns).values[order]
            place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
            seen = np.where(self.codes[place] == codes, self.counts[place], 0)
            order = order[np.argsort(-seen, kind="stable")]
        return order

    @classmethod
    def zipf(
        cls, values: int, exponent: float, absent: float = 0.0, *, scattered: bool = True
    ) -> Demand:
        """Return the demand of Zipf's law: rank r has a share in proportion to 1/r^exponent."""
        if not 0 <= exponent <= _STEEPEST:
            msg = f"skew={exponent!r} is not possible; give a Zipf exponent from 0 (uniform) to 10"
            raise OptionError(msg)
        head = np.arange(1.0, min(values, _HEAD) + 1)
        tail = np.geomspace(head[-1], max(values, _HEAD), 1000)[1:]
        tail = tail[: len(tail) * (values > _HEAD)]
        sums = np.concatenate([[0.0], np.cumsum(head**-exponent)])
        behind = sums[-1] + _area(head[-1] + 0.5, tail + 0.5, exponent)
        sums = np.concatenate([sums, behind])
        return cls(np.concatenate([[0.0], head, tail]), sums / sums[-1], absent, scattered)

    @classmethod
    def counted(cls, codes: Ints, counts: Ints, values: int, absent: float) -> Demand:
        """Return the demand that a sample speaks for: its keys, and how often each was seen.

        Counts alone mislead: of keys seen once some are rarer, and unseen keys come too. So keys
        that were not seen often are taken for a mixture of Poisson laws, the one that makes it most
        likely that so many were seen no times, once, twice, … (Kiefer and Wolfowitz 1956, by EM).
        """
        often, rest = np.sort(counts[counts >= _OFTEN])[::-1], counts[counts < _OFTEN]
        size, rate = _mixture(rest, max(values - len(often), len(rest), 1))
        size = np.concatenate([np.ones(len(often)), size])
        rows = np.concatenate([often, rate]) * size
        until = np.cumsum(rows) / rows.sum()
        ranks = np.cumsum(size)
        return cls(np.append(0.0, ranks), np.append(0.0, until), absent, True, codes, counts)


def _area(low: float, high: Floats, exponent: float) -> Floats:
    """Integrate t^-exponent from ``low`` to each of ``high``: the sum of the ranks between."""
    if exponent == 1:
        return np.log(high / low)
    return np.asarray((high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent))


def _mixture(counts: Ints, keys: int) -> tuple[Floats, Floats]:
    """Return how many of ``keys`` keys come how often, most frequent first."""
    seen = np.bincount(counts, minlength=2).astype(np.float64)
    seen[0] = keys - len(counts)
    most = len(seen) - 1
    rates = np.geomspace(min(0.1, (counts.sum() + 1) / keys) / 10, most + 1.0, _RATES)
    times = np.arange(len(seen))
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(times[1:], 1)))])
    chance = np.exp(times[:, None] * np.log(rates) - rates - factorial[:, None])
    part = np.full(_RATES, 1 / _RATES)
    for _ in range(_ROUNDS):
        part *= (seen / np.maximum(chance @ part, 1e-300)) @ chance / keys
    return keys * part[::-1], rates[::-1]


def stream_like(master: Master, row_bytes: int) -> pa.Schema:
    """Return a schema of the master's key, and a number and a filler up to so many bytes a row.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> master = ss.build_master(pa.table({"id": [1, 2]}), tempfile.mkdtemp(), key="id")
    >>> stream_like(master, 24).types
    [DataType(int64), DataType(int64), FixedSizeBinaryType(fixed_size_binary[8])]
    """
    kinds = [plain_type(master.schema.field(name).type) for name in master.key]
    fields = [pa.field(name, kind) for name, kind in zip(master.key, kinds, strict=True)]
    room = row_bytes - sum(_VARIES if (w := row_width(kind)) is None else w for kind in kinds)
    if room < 0 and all(row_width(kind) is not None for kind in kinds):
        msg = (
            f"stream_row={row_bytes!r} is too few bytes: the key {', '.join(master.key)} alone "
            f"has {row_bytes - room}"
        )
        raise OptionError(msg)
    taken = master.schema.names
    if room >= 8:
        fields.append(pa.field(unused("number", taken), pa.int64()))
        room -= 8
    if room > 0:
        fields.append(pa.field(unused("filler", taken), pa.binary(room)))
    return pa.schema(fields)


def draw_batches(
    spec: JoinSpec, demand: Demand, view: View, seed: int, rows: int
) -> Iterator[pa.RecordBatch]:
    """Draw batches without end: the view's keys, as often as a demand asks for them."""
    rng = np.random.default_rng(seed)
    keys, count = view.present, view.present.num_rows
    until = np.cumsum(demand.shares(count))
    key_of_rank = demand.order(view, rng)
    missing = view.absent.num_rows
    if missing:
        keys = pa.Table.from_batches([keys, view.absent]).combine_chunks().to_batches()[0]
    others = {field.name: _filler(field.type, rows) for field in spec.stream}
    while True:
        ranks = np.searchsorted(until, rng.random(rows) * until[-1], side="right")
        chosen = key_of_rank[np.minimum(ranks, count - 1)]
        if missing:
            lost = rng.random(rows) < demand.absent
            chosen[lost] = count + rng.integers(0, missing, int(lost.sum()))
        drawn = dict(zip(spec.stream_keys, keys.take(pa.array(chosen)).columns, strict=True))
        columns = [
            encode(drawn[field.name], field.type) if field.name in drawn else others[field.name]
            for field in spec.stream
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=spec.stream)


def _filler(kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of one value; nulls where the type is neither plain numbers nor texts."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.repeat(pa.scalar(b"x" * _VARIES, pa.binary()).cast(kind), rows)
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        zeros = pa.py_buffer(bytes(-(-rows * kind.bit_width // 8)))
        return pa.Array.from_buffers(kind, rows, [None, zeros])
    return pa.nulls(rows, kind)
