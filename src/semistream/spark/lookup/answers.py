"""Answers in the order of their keys, as Spark wants them of a scalar UDF."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.types import cast, row_width
from semistream.errors import MasterError
from semistream.spark.types import transfer_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from semistream.join import Join

__all__ = ["Answers"]


_NO_ROWS = np.empty(0, dtype=np.int32)


class Answers:
    """Puts joined rows back into the order in which their keys came.

    A join that looks rows up at once answers a batch when it comes. Else rows wait, and answers are
    collected until so many keys have come that the room for answers is full.

    ``join`` takes numbers of rows and their keys (``stream`` is their schema); it is ``inner`` on a
    master with unique keys, or ``semi``. ``room`` is the bytes that answers may have which are not
    complete; ``master`` names the master in messages.
    """

    def __init__(self, join: Join, stream: pa.Schema, room: int, master: str) -> None:
        self._join, self._stream, self._room, self._master = join, stream, room, master
        self._fields = list(join.schema)[len(stream) :]
        self._targets = [transfer_type(field) for field in self._fields]
        self._least = 8 + sum(row_width(kind) or 8 for kind in self._targets)
        self._sizes: deque[int] = deque()
        self._parts: list[pa.RecordBatch] = []
        self._keys = 0

    def add(self, keys: Sequence[pa.Array]) -> Iterator[pa.Array]:
        """Take a batch of keys; return the answers that are ready, one array a batch."""
        size = len(keys[0])
        numbers = pa.array(np.arange(self._keys, self._keys + size, dtype=np.int32))
        typed = [cast(key, f.type) for key, f in zip(keys, list(self._stream)[1:], strict=True)]
        batch = pa.RecordBatch.from_arrays([numbers, *typed], schema=self._stream)
        self._parts += self._join.offer(batch)
        self._sizes.append(size)
        self._keys += size
        if not self._join.waiting or self._bytes >= self._room:
            yield from self.finish()

    @property
    def _bytes(self) -> int:
        """Bytes of the answers so far, and of those that wait, if they are alike."""
        size = sum(int(part.get_total_buffer_size()) for part in self._parts)
        rows = sum(int(part.num_rows) for part in self._parts)
        return self._keys * max(self._least, size // max(1, rows))

    def finish(self) -> Iterator[pa.Array]:
        """Return all answers that are due."""
        self._parts += self._join.drain()
        answers, start = self._in_order(), 0
        while self._sizes:
            size = self._sizes.popleft()
            yield answers.slice(start, size)
            start += size
        self._keys = 0

    def _in_order(self) -> pa.Array:
        parts, self._parts = [part for part in self._parts if part.num_rows], []
        rows = np.concatenate([part.column(0).to_numpy() for part in parts] or [_NO_ROWS])
        matched = np.zeros(self._keys, dtype=np.bool_)
        matched[rows] = True
        self._check_single(len(rows), int(np.count_nonzero(matched)))
        if not self._fields:
            return pa.array(matched)
        order = _order(rows, self._keys)
        columns = [self._column(parts, i, order) for i in range(len(self._fields))]
        mask = None if len(rows) == self._keys else pa.array(~matched)
        names = [field.name for field in self._fields]
        return pa.StructArray.from_arrays(columns, names=names, mask=mask)

    def _check_single(self, answers: int, rows: int) -> None:
        """Raise for several answers to a row: without snapshots a database does not tell before."""
        if answers != rows:
            msg = (
                f"{self._master}: keys have come to have several rows there ({answers:,} answers "
                f"to {rows:,} rows), and with transfer='keys' a row has one answer; start the "
                "query anew with transfer='rows'"
            )
            raise MasterError(msg)

    def _column(self, parts: list[pa.RecordBatch], number: int, order: pa.Array | None) -> pa.Array:
        if not parts:
            return pa.nulls(self._keys, self._targets[number])
        pieces = [part.column(len(self._stream) + number) for part in parts]
        column = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        if order is not None:
            column = column.take(order)
        return cast(column, self._targets[number], safe=False)


def _order(rows: npt.NDArray[np.int32], keys: int) -> pa.Array | None:
    """Return where each row's answer stands; None where they stand in order.

    What a row without an answer takes does not matter: it is masked.
    """
    if len(rows) == keys and not (rows[1:] < rows[:-1]).any():
        return None
    order = np.zeros(keys, dtype=np.int32)
    order[rows] = np.arange(len(rows), dtype=np.int32)
    return pa.array(order)
