"""The stream that a plan is made for: what it asks for, and its columns when none are given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.cost.demand import Demand
from semistream.errors import OptionError
from semistream.plain import plain_type, row_width

if TYPE_CHECKING:
    from semistream.cost.sampling.sample import Sample
    from semistream.master import Master
    from semistream.spec import On

__all__ = ["PlannedStream", "stream_like", "stream_of"]

_VARIES = 32  # bytes: what the plan of a join assumes for a value that varies
_COLUMNS = {"sale": pa.int64(), "quantity": pa.int32()}


def stream_like(master: Master, row_bytes: int) -> pa.Schema:
    """Give a schema with the master's key, whose rows have so many bytes.

    Behind the key come the columns of the synthetic streams as far as they fit, and a filler.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> master = ss.build_master(pa.table({"id": [1, 2]}), tempfile.mkdtemp(), key="id")
    >>> stream_like(master, 24).types
    [DataType(int64), DataType(int64), DataType(int32), FixedSizeBinaryType(fixed_size_binary[4])]
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
    for name, kind in _COLUMNS.items():
        if kind.byte_width <= room:
            fields.append(pa.field(_free(master, name), kind))
            room -= kind.byte_width
    if room > 0:
        fields.append(pa.field(_free(master, "filler"), pa.binary(room)))
    return pa.schema(fields)


def _free(master: Master, name: str) -> str:
    """Give a name that no column of the master has."""
    while name in master.schema.names:
        name = f"{name}_"
    return name


@dataclass(frozen=True, eq=False)
class PlannedStream:
    """What a stream asks for, and how that is known."""

    demand: Demand
    note: str
    row_bytes: int | None = None
    """None where no row was seen."""


def stream_of(
    master: Master,
    skew: float,
    absent: float,
    sample: Sample | str | os.PathLike[str] | None,
    on: On,
) -> PlannedStream:
    """Take a stream to be as a sample of it is, or to follow Zipf's law."""
    if not master.statistics.values:
        msg = f"{master.path}: this master has no rows, so there is nothing to plan"
        raise OptionError(msg)
    if sample is None:
        demand = Demand.zipf(master.statistics.values, skew, master.pages, absent=absent)
        law = f"Zipf's law with exponent {skew:g}, {absent:.1%} of rows without a match"
        return PlannedStream(demand, f"Stream: {law}.")
    if isinstance(sample, (str, os.PathLike)):
        from semistream.cost.sampling.sample import sample_source  # noqa: PLC0415 - seldom wanted

        sample = sample_source(sample, master, on)
    note = f"Stream, as sampled:\n{sample.describe()}"
    size = round(sample.row_bytes) - 1  # a byte of them tells which columns are null
    return PlannedStream(sample.demand(master), note, size)
