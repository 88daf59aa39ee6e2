"""The stream that a plan is made for when none is given: the master's key, and a filler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.errors import OptionError
from semistream.plain import row_width

if TYPE_CHECKING:
    from semistream.master import Master

__all__ = ["stream_like"]

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
    fields = [pa.field(name, master.schema.field(name).type) for name in master.key]
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
