"""A sample of a stream's keys, in memory that is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.slices import plain_slices

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.spec import JoinSpec

    Ints = npt.NDArray[np.int64]

__all__ = ["Counted", "Sample"]

_RUN = 256  # neighbouring rows that are taken at a time
_BESIDE = 32  # bytes a row for its code, and what is computed of it


@dataclass(frozen=True, eq=False)
class Counted:
    """How often each key was seen."""

    rows: int
    codes: Ints
    """Each once, in order."""
    counts: Ints

    @property
    def repeated(self) -> float:
        """The share of rows whose key was seen before: the more, the more skewed."""
        return (self.rows - len(self.codes)) / max(1, self.rows)

    @classmethod
    def of(cls, codes: Ints) -> Counted:
        """Count keys.

        Examples
        --------
        >>> Counted.of(np.array([7, 3, 7, 7])).repeated
        0.5
        """
        return cls(len(codes), *np.unique(codes, return_counts=True))


class Sample:
    """The codes of the last rows of a stream, of all of them or of a share.

    Parameters
    ----------
    spec
        The join.
    rows
        How many rows there is room for.
    """

    def __init__(self, spec: JoinSpec, rows: int) -> None:
        self._keys, self._names = spec.master.keys, list(spec.stream_keys)
        self._plain = pa.schema([spec.plain_stream.field(name) for name in self._names])
        self._codes = np.empty(rows, dtype=np.int64)
        self._taken = 0
        self._share, self._due = 1.0, 0.0

    def __len__(self) -> int:
        """How many rows there is room for."""
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._codes.nbytes

    @property
    def full(self) -> bool:
        """Whether as many rows were taken as there is room for, since the sample was begun."""
        return self._taken >= len(self._codes)

    def begin(self, share: float) -> None:
        """Begin anew, and take a share of the rows."""
        self._taken, self._share, self._due = 0, min(1.0, share), 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of a batch, as many as are due; rows without a key do not count."""
        self._due = min(self._due + self._share * batch.num_rows, float(len(self._codes)))
        count = min(int(self._due), batch.num_rows)
        if count < min(_RUN, batch.num_rows, len(self._codes)):
            return
        self._due -= count
        # Batches may be sorted: another part of each is taken.
        first = self._taken * 7919 % (batch.num_rows - count + 1)
        some = batch.slice(first, count).select(self._names)
        # As the engine does it, in slices: a dictionary may hide any size.
        for rows, _ in plain_slices(some, self._plain, self.nbytes, copies=2, beside=_BESIDE):
            codes = self._keys.encode(rows.columns)
            self._put(codes.values[codes.valid])

    def _put(self, codes: Ints) -> None:
        """Write over what is oldest."""
        room = len(self._codes)
        at = (self._taken + np.arange(len(codes))) % room
        self._codes[at] = codes
        self._taken += len(codes)

    def counted(self) -> Counted:
        """Count the keys of the sample."""
        return Counted.of(self._codes[: self._taken])
