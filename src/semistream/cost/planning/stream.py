"""The stream that a plan is made for: what it asks for, and its columns when none are given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.arrow.types import plain_type, row_width
from semistream.cost.demand import Demand
from semistream.errors import OptionError
from semistream.names import unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from semistream.cost.sampling.sample import Sample
    from semistream.master import FileMaster
    from semistream.spec import On

__all__ = ["PlannedStream", "stream_like", "stream_of"]

_VARIES = 32  # bytes: what the plan of a join assumes for a value that varies
_COLUMNS = {"sale": pa.int64(), "quantity": pa.int32()}


def stream_like(master: FileMaster, row_bytes: int, columns: int | None = None) -> pa.Schema:
    """Give a schema with the master's key, whose rows have so many bytes, and columns if given.

    Behind the key come the columns of the synthetic streams as far as they fit, and fillers.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> master = ss.build_master(pa.table({"id": [1, 2]}), tempfile.mkdtemp(), key="id")
    >>> stream_like(master, 24).types
    [DataType(int64), DataType(int64), DataType(int32), FixedSizeBinaryType(fixed_size_binary[4])]
    >>> stream_like(master, 100, columns=6).names
    ['id', 'sale', 'quantity', 'filler', 'filler1', 'filler2']
    """
    kinds = (plain_type(master.schema.field(name).type) for name in master.key)
    fields = [pa.field(name, kind) for name, kind in zip(master.key, kinds, strict=True)]
    widths = [row_width(kind) for kind in master.keys.types]
    room = row_bytes - sum(_VARIES if width is None else width for width in widths)
    if room < 0 and None not in widths:
        msg = (
            f"stream_row={row_bytes!r} is too few bytes: the key {', '.join(master.key)} alone "
            f"has {row_bytes - room}"
        )
        raise OptionError(msg)
    others = None if columns is None else columns - len(fields)
    fields += [
        pa.field(unused(name, master.schema.names), kind) for name, kind in _others(room, others)
    ]
    return pa.schema(fields)


def _others(room: int, columns: int | None) -> Iterator[tuple[str, pa.DataType]]:
    """Divide bytes among columns: the usual ones that fit, and fillers for what is left."""
    for name, kind in _COLUMNS.items():
        others = None if columns is None else columns - 1
        if _suffices(room - kind.byte_width, others):
            yield name, kind
            room, columns = room - kind.byte_width, others
    fillers = min(max(0, room), max(1, columns or 1))
    for number in range(fillers):
        size = room // fillers + (number < room % fillers)
        yield f"filler{number or ''}", pa.binary(size)


def _suffices(room: int, columns: int | None) -> bool:
    """Tell whether so many columns, if that is known, can have these bytes, one each at least."""
    if columns is None:
        return room >= 0
    return room >= columns if columns > 0 else room == 0


@dataclass(frozen=True, eq=False)
class PlannedStream:
    """What a stream asks for, and how that is known."""

    demand: Demand
    note: str
    facts: Mapping[str, Any]
    """The same for programs."""
    row_bytes: int | None = None
    columns: int | None = None
    """Both are None where no row was seen."""


def stream_of(
    master: FileMaster,
    skew: float,
    absent: float,
    sample: Sample | str | os.PathLike[str] | None,
    on: On,
) -> PlannedStream:
    """Take a stream to be as a sample of it is, or to follow Zipf's law."""
    if not master.statistics.values:
        msg = (
            f"{master.path}: this master has no rows, so there is nothing to plan; any budget "
            "serves until it has some: plan then"
        )
        raise OptionError(msg)
    if sample is None:
        demand = Demand.zipf(master.statistics.values, skew, master.pages, absent=absent)
        law = f"Zipf's law with exponent {skew:g}, {absent:.1%} of rows without a match"
        return PlannedStream(demand, f"Stream: {law}.", _facts(master, skew, absent))
    if isinstance(sample, (str, os.PathLike)):
        from semistream.cost.sampling.sample import sample_source  # noqa: PLC0415 - seldom wanted

        sample = sample_source(sample, master, on)
    if not hasattr(sample, "demand"):
        msg = f"sample={sample!r} is no sample; give files or a topic of the stream, or a Sample"
        raise OptionError(msg)
    note = f"Stream, as sampled:\n{sample.describe()}"
    nulls = -(-sample.columns // 8)  # bytes that tell which columns are null
    size = round(sample.row_bytes) - nulls
    return PlannedStream(sample.demand(master), note, sample.as_dict(), size, sample.columns)


def _facts(master: FileMaster, skew: float, absent: float) -> dict[str, Any]:
    statistics = master.statistics
    matches = statistics.rows / statistics.values
    return {"law": "zipf", "exponent": skew, "absent": absent, "matches": matches}
