"""Keys whose code is the key: in a database dates and times, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.arrow.keys import Codes, Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OrderedKeys"]


@dataclass(frozen=True)
class OrderedKeys(Keys):
    """Keys in the order of their values, wherever these have one of 64 bits.

    Files have dates and times in the order of a hash, which their format promises. Codes of a
    database are in no file: where the code is the key, no second hash is needed to tell keys apart.

    Examples
    --------
    >>> from datetime import date
    >>> keys = OrderedKeys.of(pa.schema([("day", pa.date32())]), ["day"])
    >>> codes = keys.encode([pa.array([date(1970, 1, 3), None])])
    >>> keys.exact, codes.values.tolist(), keys.decode(pa.array(codes.values[:1])).to_pylist()
    (True, [2, 0], [datetime.date(1970, 1, 3)])
    """

    @property
    def exact(self) -> bool:
        """Whether equal codes mean equal keys."""
        return super().exact or self._is_time

    @property
    def _is_time(self) -> bool:
        kind = self.types[0]
        single = len(self.types) == 1
        return single and bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))

    def encode(self, columns: Sequence[pa.Array]) -> Codes:
        """Give the code of each row."""
        if not self._is_time:
            return super().encode(columns)
        column = self.canonical(columns)[0]
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
        numbers = numbers.cast(pa.int64()).fill_null(0)
        return Codes(numbers.to_numpy(), valid, bool(valid.all()))

    def decode(self, codes: pa.Array) -> pa.Array:
        """Give the keys that codes stand for, in the type they are compared in."""
        if not self._is_time:
            return super().decode(codes)
        kind = self.types[0]
        return codes.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else codes.cast(kind)
